"""Plan2Explore (Sekar et al. 2020): explore where a world model's ensemble disagrees.

One update: the world model learns from real sequences; the ensemble learns to predict the next
embedding; actor and value learn in imagination on predicted task reward plus disagreement. In the
zero-shot mode there are two behaviors: a curious one for disagreement alone, which collects, and
one for the task, which is evaluated and never touches the environment in training.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sibe.agents.modules import load_modules
from sibe.agents.plan2explore.behavior import ADAM_EPS, Behavior, LatentActor, descend
from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.agents.plan2explore.disagreement import EnsembleDisagreement
from sibe.agents.plan2explore.imagination import Imagined, imagine
from sibe.agents.plan2explore.networks import frozen
from sibe.agents.plan2explore.policy import RecurrentPolicy
from sibe.agents.plan2explore.rssm import State
from sibe.agents.plan2explore.world_model import ModelOutput, WorldModel
from sibe.agents.protocol import Metrics, Missing, Policy
from sibe.config.schema import RunConfig
from sibe.envs.sensors import Observation, count, each
from sibe.foreground.learner import ForegroundLearner
from sibe.replay.chunk import Chunk

MODEL_METRICS = (
    *("reward_loss", "continue_loss", "kl", "prior_std"),
    *("posterior_std", "model_gradient", "ensemble_loss"),
)
BEHAVIOR_METRICS = ("actor_loss", "value_loss", "imagined_reward", "bonus", "value", "action_std")


class Plan2Explore:
    """World model, ensemble and behaviors, and how they are updated.

    Args:
        config: the run; ``method_config`` is a ``Plan2ExploreConfig``.
        action_dim: A.
        generator: draws the initial weights and all noise of the updates.
        device: where the networks live.
        state_size: numbers of the sensor ``state``; 0 if there is none.
    """

    def __init__(
        self,
        config: RunConfig,
        action_dim: int,
        generator: torch.Generator,
        device: torch.device,
        state_size: int = 0,
    ) -> None:
        own: Plan2ExploreConfig = config.method_config
        self.config, self.own, self.device, self.generator = config, own, device, generator
        self.action_dim, self.state_size = action_dim, state_size
        self.sensors = config.env.seen
        self.model = WorldModel(
            own,
            config.env.size,
            action_dim,
            sensors=self.sensors,
            state_size=state_size,
            dropout=config.env.sensor_dropout,
            generator=generator,
        )
        for convolutions in (self.model.encoder, self.model.decoder):
            convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.model.to(device)
        features, embedding = self.model.rssm.features, self.model.encoder.size
        self.ensemble = EnsembleDisagreement(
            own, features, action_dim, embedding, generator=generator
        ).to(device)
        names = ("task",) if own.mode == "combination" else ("task", "curious")
        self.behaviors = {
            name: Behavior(own, features, action_dim, generator, device) for name in names
        }
        adam = torch.optim.Adam
        self.model_optimizer, self.ensemble_optimizer = (
            adam(network.parameters(), lr=own.model_lr, eps=ADAM_EPS, fused=True)
            for network in (self.model, self.ensemble)
        )
        self.updates = 0
        self.foreground: ForegroundLearner | None = None

    @property
    def must_be_finite(self) -> list[str]:
        """All losses: those of the world model, of the ensemble and of the behaviors."""
        return [name for name in self.metric_names() if name.endswith("_loss")]

    def update(self, chunk: Chunk) -> Metrics:
        """Learn from a minibatch of sequences; return detached metrics."""
        chunk = chunk.to(self.device)
        out: ModelOutput = self.model(chunk, self.generator)
        norm = descend(out.loss, self.model, self.model_optimizer, self.own.clip)
        metrics = {**out.metrics, "model_gradient": norm, **self._update_ensemble(chunk, out)}
        start = State(*(part.detach().flatten(0, 1) for part in out.observed.state))
        # Nothing is imagined from beyond the end of an episode.
        alive = torch.cat((torch.ones_like(chunk.discount[:1]), chunk.discount)).flatten()
        for name, behavior in self.behaviors.items():
            learned = self._update_behavior(name, behavior, start, alive)
            metrics |= {_metric(name, key): value for key, value in learned.items()}
        self.updates += 1
        return metrics

    def _update_ensemble(self, chunk: Chunk, out: ModelOutput) -> Metrics:
        loss = self.ensemble.loss(
            out.observed.state.features[:-1].flatten(0, 1),
            chunk.action.flatten(0, 1),
            out.embedding[1:].flatten(0, 1),
            self.generator,
        )
        descend(loss, self.ensemble, self.ensemble_optimizer, self.own.clip)
        return {"ensemble_loss": loss.detach()}

    def _update_behavior(
        self, name: str, behavior: Behavior, start: State, alive: Tensor
    ) -> Metrics:
        """Imagine from ``start [N, …]`` and step actor and value; ``alive [N]`` weighs starts."""
        actor, value = behavior.actor, behavior.value
        with frozen(self.model, value):
            path = imagine(
                self.model.rssm,
                start,
                lambda features: actor.act(features, self.generator),
                self.own.horizon,
                self.generator,
            )
            reward, bonus = self._reward(name, path)
            discount = self.model.discount(path.features[1:])
            outlook = behavior.outlook(path, reward, discount, alive)
            actor_loss = behavior.actor_loss(outlook)
            behavior.step(actor_loss, actor, behavior.actor_optimizer)
        value_loss = behavior.value_loss(path, outlook)
        behavior.step(value_loss, value, behavior.value_optimizer)
        with torch.no_grad():
            action_std = path.action.std(1).mean()
        return {
            "actor_loss": actor_loss.detach(),
            "value_loss": value_loss.detach(),
            "imagined_reward": reward.detach().mean(),
            "bonus": bonus.mean(),
            "value": outlook.returns.detach().mean(),
            "action_std": action_std,
        }

    def _reward(self, name: str, path: Imagined) -> tuple[Tensor, Tensor]:
        """Return what a behavior is paid for each imagined step, and the bonus in it; [H, N]."""
        if name == "task":
            task = self.model.reward(path.features[1:])
            if self.own.mode == "zero_shot":
                return task, torch.zeros_like(task).detach()
            bonus = self.own.intrinsic * self.ensemble.bonus(path.features[:-1], path.action)
            return task + bonus, bonus
        bonus = self.ensemble.bonus(path.features[:-1], path.action)
        return bonus, bonus

    def actor(self, explore: bool) -> LatentActor:
        """Return the actor that collects (``explore``) or the one that is evaluated."""
        collects = "curious" if "curious" in self.behaviors else "task"
        return self.behaviors[collects if explore else "task"].actor

    def policy(self) -> Policy:
        """Return a policy that follows each of its episodes with the RSSM."""
        return RecurrentPolicy(
            self.model, self.actor, self.action_dim, self.own.action_noise, self.device
        )

    @torch.no_grad()
    def embed(self, obs: Observation, missing: Missing | None = None) -> dict[str, Tensor]:
        """Return, for frames uint8 ``[N, H, W, 3]`` without a past, c and z.

        c is the encoder's embedding ``[N, E]``, z the mean of the posterior at the first frame of
        an episode ``[N, S]``. With several sensors, frames are readings by sensor, and
        ``missing [N, K]`` says which of them gave none.
        """
        readings = each(lambda part: torch.from_numpy(part).to(self.device), obs)
        absent = None if missing is None else torch.from_numpy(missing).to(self.device)
        c = self.model.embed(readings, absent)
        initial = self.model.rssm.initial(count(obs))
        action = c.new_zeros(count(obs), self.action_dim)
        state = self.model.rssm.observe_step(initial, action, c, torch.zeros_like(initial.stoch))
        return {"c": c, "z": state.stoch}

    def metric_names(self) -> list[str]:
        """Return the names of all metrics of an update."""
        learned = [_metric(name, key) for name in self.behaviors for key in BEHAVIOR_METRICS]
        seen = {"image_loss": self.sensors.pixels, "state_loss": self.sensors.state}
        readings = [name for name, there in seen.items() if there]
        return ["model_loss", *readings, *MODEL_METRICS, *learned]

    def networks(self) -> dict[str, nn.Module]:
        """Return all networks by name."""
        modules = self._modules().items()
        return {name: module for name, module in modules if isinstance(module, nn.Module)}

    def policy_networks(self) -> dict[str, nn.Module]:
        """Return what acting and embedding need, by name: what an export holds."""
        networks = self.networks().items()
        return {name: one for name, one in networks if not name.endswith(("ensemble", "value"))}

    def _modules(self) -> dict[str, Any]:
        names = ("model", "ensemble", "model_optimizer", "ensemble_optimizer")
        modules = {name: getattr(self, name) for name in names}
        for name, behavior in self.behaviors.items():
            modules |= {_metric(name, key): part for key, part in behavior.modules().items()}
        return modules

    def state_dict(self) -> dict[str, Any]:
        """Return everything an exact continuation needs, as plain values and tensors."""
        return {
            **{name: module.state_dict() for name, module in self._modules().items()},
            "generator": self.generator.get_state(),
            "updates": self.updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` returned."""
        load_modules(self._modules(), state)
        self.generator.set_state(state["generator"].cpu())
        self.updates = state["updates"]


def _metric(behavior: str, name: str) -> str:
    """The task's behavior is the one that is judged: its names go without a prefix."""
    return name if behavior == "task" else f"{behavior}_{name}"
