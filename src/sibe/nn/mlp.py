"""Fully connected networks with ReLU between the layers, as all heads of the paper are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from sibe.nn.fully_connected import connect, kernels_help
from sibe.nn.init import orthogonal_


class MLP(nn.Sequential):
    """Linear layers with ReLU between them, and whatever comes after the last one."""

    @property
    def linears(self) -> list[nn.Linear]:
        """The linear layers, in order."""
        return [layer for layer in self if isinstance(layer, nn.Linear)]

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[..., out]`` of ``x [..., in]``."""
        linears = self.linears
        if not kernels_help(x, linears):
            y: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return y
        y = connect(x, linears).squeeze(0)  # not [0]: its gradient would be copied
        for module in list(self)[2 * len(linears) - 1 :]:
            y = module(y)
        return y


def mlp(
    sizes: Sequence[int],
    *,
    layer_norm: bool = False,
    generator: torch.Generator | None = None,
) -> MLP:
    """Return a network ``[..., sizes[0]] -> [..., sizes[-1]]`` with ``len(sizes) - 1`` layers.

    ``layer_norm`` normalizes the output. ``generator`` draws the initial weights.
    """
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU(inplace=True)]
    layers.pop()  # no ReLU after the last layer
    if layer_norm:
        layers.append(nn.LayerNorm(sizes[-1]))
    network = MLP(*layers)
    orthogonal_(network, generator)
    return network
