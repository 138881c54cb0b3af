"""Actor and twin critic: two hidden layers each on the state representation c."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sibe.nn.gaussian import bounded_log_std
from sibe.nn.mlp import mlp


class Actor(nn.Module):
    """π: features ``[..., D]`` -> mean and log-std ``[..., A]`` of a Gaussian before tanh."""

    def __init__(
        self, features: int, action_dim: int, hidden: int, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.trunk = mlp((features, hidden, hidden, 2 * action_dim), generator=generator)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-std, the latter in [-10, 2]."""
        mean, raw = self.trunk(x).chunk(2, dim=-1)
        return mean, bounded_log_std(raw)


class TwinQ(nn.Module):
    """Q₁ and Q₂: c ``[..., D]``, action ``[..., A]`` -> two values ``[...]``."""

    def __init__(
        self, features: int, action_dim: int, hidden: int, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        sizes = (features + action_dim, hidden, hidden, 1)
        self.q1 = mlp(sizes, generator=generator)
        self.q2 = mlp(sizes, generator=generator)

    def forward(self, c: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return both values of taking ``action`` where c was seen."""
        x = torch.cat((c, action), dim=-1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)
