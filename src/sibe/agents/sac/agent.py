"""Soft actor-critic from pixels with one method plugged in: Algorithm 1 of the paper.

Every image goes through the convolutions once per update: online for s_k … s_{k+L-1}, target for
s_{k+1} … s_{k+L}; critic, actor and method share the result, and critic and method share one
backward pass. The critic's gradient reaches the encoder, the actor's never does. A method may put
features of its own between encoder and actor; those learn with the actor.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from sibe.agents.modules import load_modules
from sibe.agents.protocol import Actions, MemorylessPolicy, Metrics, Missing, Policy
from sibe.agents.sac import losses
from sibe.agents.sac.encoders import AnyEncoder, build_encoder
from sibe.agents.sac.networks import Actor, TwinQ
from sibe.agents.sac.terminations import Terminations, find_terminations
from sibe.config.schema import RunConfig
from sibe.envs.sensors import Observation, each
from sibe.foreground.learner import ForegroundLearner
from sibe.kernels import half_convolutions
from sibe.methods.base import Latents, Method, MethodOutput, SensorLatents
from sibe.nn.ema import frozen_copy, update_ema
from sibe.nn.gaussian import squashed_sample, standard_normal
from sibe.nn.sensor_encoder import SensorEncoder, drop_sensors
from sibe.replay.chunk import Chunk

SAC_METRICS = (
    "critic_loss",
    "q",
    "batch_reward",
    "method_loss",
    "actor_loss",
    "entropy",
    "temperature",
)


class SAC:
    """Encoder, actor, twin critic, temperature and a method, and how they are updated.

    Args:
        config: the run; its method, sizes and learning rates.
        action_dim: A.
        generator: draws the initial weights and all noise of the updates.
        device: where the networks live.
        build_method: makes the method that is plugged in, given D, A and the generator.
        state_size: numbers of the sensor ``state``; 0 if there is none.
    """

    must_be_finite = ("critic_loss", "method_loss", "actor_loss", "temperature")

    def __init__(
        self,
        config: RunConfig,
        action_dim: int,
        generator: torch.Generator,
        device: torch.device,
        build_method: Callable[[int, int, torch.Generator], Method],
        state_size: int = 0,
    ) -> None:
        self.config, self.device, self.generator = config, device, generator
        self.action_dim, self.state_size, self.sensors = action_dim, state_size, config.env.seen
        sac, enc = config.sac, config.encoder
        self.encoder = build_encoder(config, generator, state_size)
        self.method = build_method(enc.features, action_dim, generator).to(device)
        self.actor = Actor(
            self._policy_feature_size(), action_dim, sac.hidden, generator=generator
        ).to(device)
        self.critic = TwinQ(enc.features, action_dim, sac.hidden, generator=generator).to(device)
        self.encoder.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.foreground = None
        if enc.foreground and self.sensors.pixels:
            self.foreground = ForegroundLearner(generator, device)
        self.target_encoder = frozen_copy(self.encoder)
        self.target_critic = frozen_copy(self.critic)
        self.log_temperature = (
            torch.tensor(sac.init_temperature, device=device).log().requires_grad_()
        )
        self.target_entropy = -float(action_dim)
        self.updates = 0
        self._actor_metrics: Metrics = {}
        self._make_optimizers()

    @torch.no_grad()
    def _policy_feature_size(self) -> int:
        c = torch.zeros(1, self.config.encoder.features, device=self.device)
        return self.method.policy_features(c).shape[-1]

    def _make_optimizers(self) -> None:
        sac, enc = self.config.sac, self.config.encoder
        adam = torch.optim.Adam
        groups: list[dict[str, Any]] = [
            {"params": list(self.encoder.parameters()), "lr": enc.lr},
            {"params": list(self.critic.parameters()), "lr": sac.lr},
            *(dict(group) for group in self.method.parameter_groups()),
        ]
        self.optimizer = adam(groups, fused=True)
        actor_groups: list[dict[str, Any]] = [
            {"params": list(self.actor.parameters()), "lr": sac.lr},
            *(dict(group) for group in self.method.actor_parameter_groups()),
        ]
        self.actor_optimizer = adam(actor_groups, fused=True)
        self._actor_parameters = [p for group in actor_groups for p in group["params"]]
        self.temperature_optimizer = adam(
            [self.log_temperature], lr=sac.temperature_lr, betas=(0.5, 0.999)
        )

    @property
    def temperature(self) -> Tensor:
        """α_T, the price of a nat of entropy."""
        return self.log_temperature.exp()

    def update(self, chunk: Chunk) -> Metrics:
        """Learn from a minibatch of chunks; return detached metrics."""
        length = self.config.sac.chunk
        ended = find_terminations(chunk.discount, length, self.config.sac.transitions)
        ended = ended and ended.to(self.device)
        chunk = chunk.to(self.device)
        hidden = self._hidden_sensors(length, chunk.action.shape[1])
        with self._autocast():
            # φ_o(s_t)  [L, B, D]
            encoded = self._encode(self.encoder, chunk.online(0, length), hidden).float()
            with torch.no_grad():  # φ_m(s_{t+1}) and φ_m(s_{t+n})  [L, B, D]
                c_next, c_later = self._encode_ahead(chunk)
        c = leaf = encoded.detach().requires_grad_()
        alone = None
        if self.method.sees_sensors:  # [1 + K, …]: jointly, and each sensor alone
            alone = SensorLatents(leaf[1:], c_next[1:])
            c, c_next, c_later = leaf[0], c_next[0], c_later[0]
        latents = Latents(c, c_next, chunk.action[:length], chunk.reward[:length])
        if ended:
            latents, alone = ended.for_method(latents, alone)
        out = _ask(self.method, latents, alone, self.generator)
        bonus = ended.bonus(out.bonus) if ended else out.bonus
        # Eq. (augmented reward), summed over n steps.
        discount = self.config.sac.discount * chunk.discount
        reward, discount = losses.n_step(chunk.reward, bonus, discount)
        reward = self.config.sac.reward_scale * reward
        critic_loss, metrics = self._critic_loss(chunk, c, c_later, reward, discount, ended)
        self._step(encoded, leaf, critic_loss, out.loss)
        if self.updates % self.config.sac.actor_every == 0:
            term = self.method.actor_loss(latents._replace(c=latents.c.detach()), self.generator)
            self._actor_metrics = self._update_actor(self._for_sac(c, ended).detach(), term)
        if self.updates % self.config.sac.target_every == 0:
            self._update_targets()
        self.updates += 1
        metrics["batch_reward"] = (latents.reward + out.bonus).mean()
        metrics["method_loss"] = out.loss.detach()
        return {**metrics, **self._actor_metrics, **out.metrics}

    def _autocast(self) -> torch.autocast:
        """Return what puts convolutions in bfloat16, if asked for and if the device gains by it."""
        enc = self.config.encoder
        late = self.device.type == "cpu" and enc.fusion == "late"
        enabled = enc.autocast and (not late or half_convolutions.available())
        return torch.autocast(self.device.type, torch.bfloat16, enabled)

    def _encode_ahead(self, chunk: Chunk) -> tuple[Tensor, Tensor]:
        """Return what the target encoder makes of the next states and of those n steps on."""
        length, n = self.config.sac.chunk, self.config.sac.n_step
        # Plain SAC looks only at the states it bootstraps from.
        first = 1 if self.method.sees_next else n
        states, still = length + n - first, length if self.method.predicts_frame else 0
        obs = chunk.target(first, length + n)
        encoded = self._encode(self.target_encoder, obs, still=still).float()
        c_next = encoded.narrow(-3, states if still else 0, length)
        return c_next, encoded.narrow(-3, states - length, length)

    def _encode(
        self, encoder: AnyEncoder, obs: Observation, hidden: Tensor | None = None, still: int = 0
    ) -> Tensor:
        """Return c; ``[1 + K, …]`` for a method that also looks at each sensor alone.

        After the states come the first ``still`` of them as still pictures, their newest frames.
        """
        if not isinstance(encoder, SensorEncoder):
            c: Tensor = encoder(obs, still)
            return c
        c = encoder(obs, hidden, apart=self.method.sees_sensors, still=still)
        return c

    def _hidden_sensors(self, length: int, batch: int) -> Tensor | None:
        """Return which sensors are dropped of each state, bool ``[L, B, K]``; None for none."""
        share = self.config.env.sensor_dropout
        if not share:
            return None
        shape = (length, batch, len(self.sensors.names))
        return drop_sensors(shape, share, self.generator, self.device)

    def _critic_loss(
        self,
        chunk: Chunk,
        c: Tensor,
        c_later: Tensor,
        reward: Tensor,
        discount: Tensor,
        ended: Terminations | None = None,
    ) -> tuple[Tensor, Metrics]:
        """Return the squared Bellman error on the augmented reward; c_later is φ_m(s_{t+n})."""
        with torch.no_grad():
            seen = self._next_policy_input(chunk, c, c_later, ended)
            features = self.method.policy_features(seen, generator=self.generator)
            next_action, log_prob = self._act(features)
            next_q1, next_q2 = self.target_critic(self._for_sac(c_later, ended), next_action)
            target = losses.td_target(
                self._for_sac(reward, ended),
                self._for_sac(discount, ended),
                next_q1,
                next_q2,
                log_prob,
                self.temperature,
            )
        action = self._for_sac(chunk.action[: len(c)], ended)
        q1, q2 = self.critic(self._for_sac(c, ended), action)
        loss = losses.critic_loss(q1, q2, target)
        return loss, {
            "critic_loss": loss.detach(),
            "q": q1.detach().mean(),
        }

    def _step(self, encoded: Tensor, c: Tensor, critic_loss: Tensor, method_loss: Tensor) -> None:
        """Step critic, method and encoder; the convolutions see one backward pass for both."""
        self.optimizer.zero_grad(set_to_none=True)
        gradient = self._backward(critic_loss, c)
        if method_loss.requires_grad:
            of_method = self._backward(method_loss, c)
            enc = self.config.encoder
            gradient = losses.balanced(gradient, of_method, enc.method_weight, enc.method_share)
        encoded.backward(gradient)
        self.optimizer.step()

    @staticmethod
    def _backward(loss: Tensor, c: Tensor) -> Tensor:
        """Give the loss's own parameters their gradient, and return that on c, which may be 0."""
        c.grad = None
        loss.backward()
        return torch.zeros_like(c) if c.grad is None else c.grad

    def _update_actor(self, c: Tensor, of_method: Tensor | None = None) -> Metrics:
        """Step actor and temperature; c ``[N, D]`` is detached: the encoder never feels this.

        ``of_method`` is what the method adds to the actor's loss, a scalar.
        """
        features = self.method.policy_features(c, generator=self.generator)
        action, log_prob = self._act(features)
        q1, q2 = self.critic(c, action)
        loss = losses.actor_loss(log_prob, q1, q2, self.temperature.detach())
        if of_method is not None:
            loss = loss + of_method
        self.actor_optimizer.zero_grad(set_to_none=True)
        # Of the critic only the action's gradient is wanted.
        loss.backward(inputs=self._actor_parameters)
        self.actor_optimizer.step()

        entropy = -log_prob.detach()
        self.temperature_optimizer.zero_grad(set_to_none=True)
        losses.temperature_loss(self.temperature, -entropy, self.target_entropy).backward()
        self.temperature_optimizer.step()
        return {
            "actor_loss": loss.detach(),
            "entropy": entropy.mean(),
            "temperature": self.temperature.detach(),
        }

    def _update_targets(self) -> None:
        update_ema(self.target_critic, self.critic, self.config.sac.tau)
        update_ema(self.target_encoder, self.encoder, self.config.encoder.tau)  # Eq. (ema)
        self.method.update_targets()

    def _for_sac(self, x: Tensor, ended: Terminations | None = None) -> Tensor:
        """Return what SAC learns from of ``x [L, B, …]``, as ``[N, …]``."""
        batch = self.config.sac.batch
        if ended:
            return x[:, :batch][ended.rows[:, :batch]]
        return x[:, :batch].flatten(0, 1) if self.config.sac.transitions == "all" else x[0, :batch]

    def _next_policy_input(
        self, chunk: Chunk, c: Tensor, c_later: Tensor, ended: Terminations | None
    ) -> Tensor:
        """Return the representation of s_{t+n} that the policy acts on in the TD target."""
        if self.config.sac.transitions == "all":
            return self._for_sac(c_later, ended)
        batch = self.config.sac.batch
        first = self._online_later(chunk, c)
        if not ended:
            return first
        return self._for_sac(torch.cat((first[None], c_later[1:, :batch])), ended)

    def _online_later(self, chunk: Chunk, c: Tensor) -> Tensor:
        """Return φ_o(s_{k+n}), what is n steps after the first state of each chunk, ``[B, D]``."""
        batch, n = self.config.sac.batch, self.config.sac.n_step
        if n < len(c):  # φ_o(s_{k+n}) is already there
            return c[n, :batch].detach()
        obs = each(lambda part: part[:, :batch], chunk.online(n, n + 1))
        seen: Tensor = self.encoder(obs)[0]
        return seen

    def _act(self, features: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(features)
        return squashed_sample(mean, log_std, standard_normal(mean, self.generator))

    def policy(self) -> Policy:
        """Return the policy; it needs no memory, a state holds all it sees."""
        return MemorylessPolicy(self.act)

    @torch.no_grad()
    def act(
        self,
        obs: Observation,
        generator: torch.Generator | None,
        missing: Missing | None = None,
    ) -> Actions:
        """Return actions ``[N, A]`` for states uint8 ``[N, H, W, C]``, or states by sensor.

        A generator draws them from the policy; None takes its mean. ``missing`` ``[N, K]`` says
        which sensors, in the order of ``sensors.names``, gave no reading.
        """
        c = self._represent(obs, missing)
        mean, log_std = self.actor(self.method.policy_features(c, generator=generator))
        if generator is not None:
            mean = mean + log_std.exp() * standard_normal(mean, generator)
        action: Actions = mean.tanh().cpu().numpy()
        return action

    @torch.no_grad()
    def embed(self, obs: Observation, missing: Missing | None = None) -> dict[str, Tensor]:
        """Return c, and what the method makes of it, for states as ``act`` takes them."""
        c = self._represent(obs, missing)
        return {"c": c, **self.method.embed(c)}

    def _represent(self, obs: Observation, missing: Missing | None) -> Tensor:
        states = each(lambda part: torch.from_numpy(part).to(self.device), obs)
        if self.foreground is not None:
            states = self._without_background(states)
        if missing is None:
            return self.encoder.single(states)
        absent = torch.from_numpy(missing).to(self.device)
        if isinstance(self.encoder, SensorEncoder):
            return self.encoder.single(states, absent)
        return self.encoder.single(states).masked_fill(absent, 0.0)

    def _without_background(self, states: Observation) -> Observation:
        assert self.foreground is not None
        masked = self.foreground.network.masked_states
        if not isinstance(states, dict):
            return masked(states)
        seen = {name: masked(states[name]) for name in self.sensors.views}
        return {**states, **seen}

    def metric_names(self) -> list[str]:
        """Return the names of all metrics of an update, found by a dry run of the method."""
        d, a = self.config.encoder.features, self.action_dim
        zeros = torch.zeros(self.config.sac.chunk, 2, d, device=self.device)
        latents = Latents(zeros, zeros, zeros.new_zeros(*zeros.shape[:2], a), zeros[..., 0])
        alone = None
        if self.method.sees_sensors:
            alone = SensorLatents(*[zeros.expand(len(self.sensors.names), *zeros.shape)] * 2)
        with torch.no_grad():
            # On a copy: a method may remember what it is shown.
            generator = torch.Generator(self.generator.device).manual_seed(0)
            out = _ask(deepcopy(self.method), latents, alone, generator)
        return [*SAC_METRICS, *out.metrics]

    def networks(self) -> dict[str, nn.Module]:
        """Return all networks by name, targets included."""
        names = ("encoder", "target_encoder", "critic", "target_critic", "actor", "method")
        return {**{name: getattr(self, name) for name in names}, **self._foreground_network()}

    def _foreground_network(self) -> dict[str, nn.Module]:
        return {} if self.foreground is None else {"foreground": self.foreground.network}

    def policy_networks(self) -> dict[str, nn.Module]:
        """Return what acting and embedding need, by name: what an export holds."""
        names = ("encoder", "actor", "method")
        return {**{name: getattr(self, name) for name in names}, **self._foreground_network()}

    def _modules(self) -> dict[str, Any]:
        names = ("optimizer", "actor_optimizer", "temperature_optimizer")
        modules = {**self.networks(), **{name: getattr(self, name) for name in names}}
        if self.foreground is not None:
            modules["foreground_optimizer"] = self.foreground.optimizer
        return modules

    def state_dict(self) -> dict[str, Any]:
        """Return everything an exact continuation needs, as plain values and tensors."""
        return {
            **{name: module.state_dict() for name, module in self._modules().items()},
            "log_temperature": self.log_temperature.detach().clone(),
            "generator": self.generator.get_state(),
            "updates": self.updates,
            "actor_metrics": dict(self._actor_metrics),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` returned."""
        load_modules(self._modules(), state)
        with torch.no_grad():
            self.log_temperature.copy_(state["log_temperature"])
        self.generator.set_state(state["generator"].cpu())
        self.updates = state["updates"]
        metrics: Metrics = dict(state["actor_metrics"])
        if not all(isinstance(v, Tensor) and n in SAC_METRICS for n, v in metrics.items()):
            raise ValueError("its actor_metrics are not those of SAC")
        self._actor_metrics = metrics


def _ask(
    method: Method, latents: Latents, alone: SensorLatents | None, generator: torch.Generator
) -> MethodOutput:
    out: MethodOutput = method(latents, generator)
    if alone is None:
        return out
    loss, metrics = method.sensor_loss(latents, alone, generator)
    return MethodOutput(out.loss + loss, out.bonus, {**out.metrics, **metrics})
