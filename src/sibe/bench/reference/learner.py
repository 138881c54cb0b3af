"""Soft actor-critic with SIBE, each loss for itself: the reference formulation, written plainly.

Every loss encodes its own images (method online and target, critic online, next action, critic
target, actor) and has its own optimizers and backward pass; Adam and EMA go parameter by parameter.
Kinder than much public code: the bonus comes from the method's own pass instead of another one, and
actor and critic share one encoder instead of keeping a copy each.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibe.bench.reference.networks import (
    PlainActor,
    PlainBottleneck,
    PlainEncoder,
    PlainLateEncoder,
    PlainTwinQ,
)
from sibe.bench.reference.replay import Batch
from sibe.config.schema import RunConfig
from sibe.nn.init import orthogonal_


class SeparateSAC:
    """A learner that does not share work between its losses.

    Args:
        config: the run; its method is "sibe" or "none".
        action_dim: A.
        generator: draws the initial weights and all noise.
    """

    def __init__(self, config: RunConfig, action_dim: int, generator: torch.Generator) -> None:
        sac, features = config.sac, config.encoder.features
        self.config, self.generator = config, generator
        late = config.encoder.fusion == "late"
        self.encoder = PlainLateEncoder(config) if late else PlainEncoder(config)
        self.actor = PlainActor(features, action_dim, sac.hidden)
        self.critic = PlainTwinQ(features, action_dim, sac.hidden)
        self.method: PlainBottleneck | None = None
        if config.method == "sibe":
            self.method = PlainBottleneck(features, action_dim, config.method_config)
        for network in (self.encoder, self.actor, self.critic, self.method):
            if network is not None:
                orthogonal_(network, generator, smooth=config.encoder.smooth)
        if self.method is not None:
            self.method.start(generator)
        self.target_encoder = deepcopy(self.encoder).requires_grad_(False)
        self.target_critic = deepcopy(self.critic).requires_grad_(False)
        self.log_temperature = torch.tensor(sac.init_temperature).log().requires_grad_()
        self.target_entropy = -float(action_dim)
        self.updates = 0
        self._make_optimizers()

    def _make_optimizers(self) -> None:
        sac, enc = self.config.sac, self.config.encoder
        encoder = {"params": list(self.encoder.parameters()), "lr": enc.lr}
        critic = {"params": list(self.critic.parameters()), "lr": sac.lr}
        self.critic_optimizer = torch.optim.Adam([encoder, critic])
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=sac.lr)
        self.temperature_optimizer = torch.optim.Adam(
            [self.log_temperature], lr=sac.temperature_lr, betas=(0.5, 0.999)
        )
        self.method_optimizer: torch.optim.Optimizer | None = None
        if self.method is not None:
            heads = [p for p in self.method.parameters() if p.requires_grad]
            self.method_optimizer = torch.optim.Adam(
                [dict(encoder), {"params": heads, "lr": self.config.method_config.lr}]
            )

    def update(self, batch: Batch) -> None:
        """Learn from a batch, in the order of Algorithm 1 of the paper."""
        bonus = torch.zeros_like(batch.reward[: self.config.sac.chunk])
        if self.method_optimizer is not None:
            loss, surprise = self.method_loss(batch)
            bonus = self.config.method_config.intrinsic * surprise.detach()
            _step(self.method_optimizer, loss)
        _step(self.critic_optimizer, self.critic_loss(batch, bonus))
        if self.updates % self.config.sac.actor_every == 0:
            self._update_actor(batch)
        if self.updates % self.config.sac.target_every == 0:
            self._update_targets()
        self.updates += 1

    def method_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the bottleneck's loss and InfoNCE ``[L, B]``."""
        assert self.method is not None
        obs, action, reward, _, next_obs = (part[: self.config.sac.chunk] for part in batch)
        c = self.encoder(obs.flatten(0, 1))
        with torch.no_grad():
            c_next = self.target_encoder(next_obs.flatten(0, 1))
        loss, infonce = self.method(c, action.flatten(0, 1), c_next, self.generator)
        return loss, infonce.reshape(reward.shape)

    def critic_loss(self, batch: Batch, bonus: Tensor) -> Tensor:
        """Return the squared Bellman errors on reward + bonus ``[L, B]``."""
        n = self.config.sac.n_step
        obs, next_obs = self._for_sac(batch.obs), self._for_sac(batch.next_obs[n - 1 :])
        with torch.no_grad():
            c_next = self.target_encoder(next_obs)
            # What the policy sees in the target is a choice of the config; see docs/reproduction.
            seen = c_next if self.config.sac.transitions == "all" else self.encoder(next_obs)
            next_action, log_prob = self.actor(seen, self.generator)
            q1, q2 = self.target_critic(c_next, next_action)
            value = torch.min(q1, q2) - self.log_temperature.exp() * log_prob
            target = value
            for step in reversed(range(n)):  # the bonus stands for those of all n steps
                discount = self.config.sac.discount * self._for_sac(batch.discount[step:])
                reward = self._for_sac(batch.reward[step:]) + self._for_sac(bonus)
                target = self.config.sac.reward_scale * reward + discount * target
        q1, q2 = self.critic(self.encoder(obs), self._for_sac(batch.action))
        return F.mse_loss(q1, target) + F.mse_loss(q2, target)

    def _update_actor(self, batch: Batch) -> None:
        with torch.no_grad():  # the actor's gradient never reaches the encoder
            c = self.encoder(self._for_sac(batch.obs))
        action, log_prob = self.actor(c, self.generator)
        q1, q2 = self.critic(c, action)
        temperature = self.log_temperature.exp()
        loss = (temperature.detach() * log_prob - torch.min(q1, q2)).mean()
        _step(self.actor_optimizer, loss)
        missing = (-log_prob - self.target_entropy).detach()
        _step(self.temperature_optimizer, (temperature * missing).mean())

    def _update_targets(self) -> None:
        _follow(self.target_critic, self.critic, self.config.sac.tau)
        _follow(self.target_encoder, self.encoder, self.config.encoder.tau)
        if (method := self.method) is not None:
            tau = self.config.method_config.tau
            _follow(method.target_stochastic_encoder, method.stochastic_encoder, tau)
            _follow(method.target_prediction, method.prediction, tau)

    def _for_sac(self, x: Tensor) -> Tensor:
        """Return the transitions SAC learns from, of ``x [L or more, B, …]``."""
        sac = self.config.sac
        return x[: sac.chunk].flatten(0, 1) if sac.transitions == "all" else x[0]

    @torch.no_grad()
    def act(self, obs: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return an action ``[A]`` for a state uint8 ``[C, H, W]``."""
        c = self.encoder(torch.as_tensor(obs).unsqueeze(0).float())
        action: npt.NDArray[np.float32] = self.actor(c, self.generator)[0][0].numpy()
        return action

    def state_dict(self) -> dict[str, object]:
        """Return weights and optimizers, as much code of this field saves them."""
        names = [name for name, value in vars(self).items() if hasattr(value, "state_dict")]
        return {name: getattr(self, name).state_dict() for name in names}


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _follow(target: nn.Module, online: nn.Module, tau: float) -> None:
    for mine, other in zip(target.parameters(), online.parameters(), strict=True):
        mine.data.copy_(tau * other.data + (1 - tau) * mine.data)
