"""An actor and a value, learned in imagination on a reward that is handed in.

The actor climbs the λ-return by its gradient through actions, dynamics and value; the value
regresses on the same λ-return. As in Dreamer there is no target value and no entropy bonus.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.agents.plan2explore.imagination import Imagined, lambda_returns, path_weights
from sibe.agents.plan2explore.networks import elu_mlp
from sibe.nn.gaussian import standard_normal

Metrics = dict[str, Tensor]
MEAN_LIMIT, FIRST_STD, MIN_STD = 5.0, 5.0, 1e-4
ADAM_EPS = 1e-4


class LatentActor(nn.Module):
    """π: features ``[..., F]`` -> mean and standard deviation ``[..., A]`` before tanh.

    The mean is softly bounded to ±5, the standard deviation starts at 5 and stays above 1e-4.
    """

    def __init__(
        self, features: int, action_dim: int, hidden: int, *, generator: torch.Generator | None
    ) -> None:
        super().__init__()
        self.trunk = elu_mlp((features, *[hidden] * 4, 2 * action_dim), generator=generator)
        self._offset = math.log(math.expm1(FIRST_STD))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation."""
        raw_mean, raw_std = self.trunk(features).chunk(2, dim=-1)
        mean = MEAN_LIMIT * (raw_mean / MEAN_LIMIT).tanh()
        return mean, F.softplus(raw_std + self._offset) + MIN_STD

    def act(self, features: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return tanh of a sample, through which gradients flow; without a generator, of μ."""
        mean, std = self(features)
        if generator is not None:
            mean = mean + std * standard_normal(mean, generator)
        action: Tensor = mean.tanh()
        return action


class Outlook(NamedTuple):
    """What imagined trajectories are worth to one behavior."""

    returns: Tensor
    """λ-returns ``[H, N]``; carry gradient to the actions"""
    weight: Tensor
    """of each imagined state, ``[H, N]``, detached"""


class Behavior:
    """LatentActor and value with their optimizers."""

    def __init__(
        self,
        config: Plan2ExploreConfig,
        features: int,
        action_dim: int,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self.config = config
        hidden = config.hidden
        self.actor = LatentActor(features, action_dim, hidden, generator=generator).to(device)
        self.value = elu_mlp((features, *[hidden] * 3, 1), generator=generator).to(device)
        adam = torch.optim.Adam
        self.actor_optimizer = adam(
            self.actor.parameters(), lr=config.actor_lr, eps=ADAM_EPS, fused=True
        )
        self.value_optimizer = adam(
            self.value.parameters(), lr=config.value_lr, eps=ADAM_EPS, fused=True
        )

    def outlook(
        self, path: Imagined, reward: Tensor, discount: Tensor, start_weight: Tensor
    ) -> Outlook:
        """Return λ-returns and weights; reward and discount ``[H, N]``, start_weight ``[N]``."""
        value = self.value(path.features).squeeze(-1)
        returns = lambda_returns(reward, discount, value, self.config.return_lambda)
        return Outlook(returns, (path_weights(discount) * start_weight).detach())

    def actor_loss(self, outlook: Outlook) -> Tensor:
        """Return -E[weight · V_λ]."""
        return -(outlook.weight * outlook.returns).mean()

    def value_loss(self, path: Imagined, outlook: Outlook) -> Tensor:
        """Return E[weight · ½(v - V_λ)²]; no gradient leaves the value."""
        value: Tensor = self.value(path.features[:-1].detach()).squeeze(-1)
        return 0.5 * (outlook.weight * (value - outlook.returns.detach()).square()).mean()

    def step(self, loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Descend ``loss`` by one clipped step of ``network``."""
        descend(loss, network, optimizer, self.config.clip)

    def modules(self) -> dict[str, Any]:
        """Return all that has a state, by name."""
        names = ("actor", "value", "actor_optimizer", "value_optimizer")
        return {name: getattr(self, name) for name in names}


def descend(
    loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, clip: float
) -> Tensor:
    """Take one step on ``loss`` with the gradient clipped to norm ``clip``; return its norm."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(network.parameters(), clip)
    optimizer.step()
    return norm.detach()
