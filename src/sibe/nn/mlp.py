"""Fully connected networks with ReLU between the layers, as all heads of the paper are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from sibe.nn.init import orthogonal_


def mlp(
    sizes: Sequence[int],
    *,
    layer_norm: bool = False,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Return a network ``[..., sizes[0]] -> [..., sizes[-1]]`` with ``len(sizes) - 1`` layers.

    ``layer_norm`` normalizes the output. ``generator`` draws the initial weights.
    """
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU(inplace=True)]
    layers.pop()  # no ReLU after the last layer
    if layer_norm:
        layers.append(nn.LayerNorm(sizes[-1]))
    network = nn.Sequential(*layers)
    orthogonal_(network, generator)
    return network
