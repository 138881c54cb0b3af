"""K networks of one shape, run as one: a single batched matrix product per layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sibe.nn.mlp import mlp


class Ensemble(nn.Module):
    """``members`` independent networks with ReLU between their layers, each drawn as ``mlp`` is.

    Weights are ``[members, fan_in, fan_out]`` and biases ``[members, 1, fan_out]`` per layer.
    """

    def __init__(
        self, sizes: Sequence[int], members: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.members = members
        drawn = [mlp(sizes, generator=generator) for _ in range(members)]
        layers = [[layer for layer in net if isinstance(layer, nn.Linear)] for net in drawn]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for same in zip(*layers, strict=True):
            self.weights.append(torch.stack([layer.weight.detach().T for layer in same]))
            self.biases.append(torch.stack([layer.bias.detach()[None] for layer in same]))

    def forward(self, x: Tensor, *, own: bool = False) -> Tensor:
        """Return what every member makes of x: ``[members, ..., out]``.

        x is ``[..., in]``, the same for all members; with ``own`` it is ``[members, ..., in]``,
        an input of its own for each. (Said, not guessed from the shape: a minibatch may well have
        as many rows as there are members.)
        """
        leading = x.shape[1:-1] if own else x.shape[:-1]
        h = x.reshape(self.members if own else 1, -1, x.shape[-1]).expand(self.members, -1, -1)
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h.relu() if index else h, weight)
        return h.reshape(self.members, *leading, -1)
