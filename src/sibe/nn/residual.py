"""Residual networks that see a condition, such as an action, at every layer.

An action of few dimensions beside a wide hidden layer is soon drowned; given to each layer anew,
it reaches the output undiluted. Without a condition this is an ordinary residual network.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibe.nn.init import orthogonal_


class ConditionedLinear(nn.Module):
    """A linear layer on the concatenation of its input and the condition."""

    def __init__(self, inputs: int, outputs: int, condition: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs + condition, outputs)

    def forward(self, x: Tensor, condition: Tensor | None) -> Tensor:
        """Take x ``[..., inputs]`` and the condition ``[..., condition]``, if any."""
        y: Tensor = self.linear(x if condition is None else torch.cat((x, condition), dim=-1))
        return y


class ResidualBlock(nn.Module):
    """x + W₂ leaky(W₁ x), both layers conditioned."""

    def __init__(self, width: int, condition: int = 0) -> None:
        super().__init__()
        self.first = ConditionedLinear(width, width, condition)
        self.second = ConditionedLinear(width, width, condition)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Map ``[..., width] -> [..., width]``."""
        inner: Tensor = self.second(F.leaky_relu(self.first(x, condition)), condition)
        return x + inner


class ResidualNetwork(nn.Module):
    """A layer in, residual blocks, a layer out: ``[..., inputs] -> [..., outputs]``.

    Args:
        inputs, hidden, outputs: widths.
        condition: dimensions of what every layer sees besides its input; 0 for nothing.
        blocks: how many residual blocks lie between the two layers.
        generator: draws the initial weights.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        *,
        condition: int = 0,
        blocks: int = 2,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.first = ConditionedLinear(inputs, hidden, condition)
        self.blocks = nn.ModuleList(ResidualBlock(hidden, condition) for _ in range(blocks))
        self.last = ConditionedLinear(hidden, outputs, condition)
        orthogonal_(self, generator)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """Take x ``[..., inputs]`` and the condition ``[..., condition]``."""
        x = F.leaky_relu(self.first(x, condition))
        for block in self.blocks:
            x = block(x, condition)
        y: Tensor = self.last(x, condition)
        return y
