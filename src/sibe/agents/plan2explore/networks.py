"""The building blocks of Dreamer's networks: ELU layers, and weights drawn by Glorot's rule.

The initialization of pixel SAC (`sibe.nn.init`) would not do here: its convolutions start with a
single tap, which under four strides of two would look at one pixel in two hundred and fifty-six.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibe.nn.gaussian import Gaussian

MIN_STD = 0.1


@torch.no_grad()
def glorot_(module: nn.Module, generator: torch.Generator | None = None) -> None:
    """Draw every layer inside ``module`` in place: Glorot-uniform weights, biases 0.

    A GRU's recurrent weights are orthogonal, gate by gate.
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            if layer.bias is not None:
                layer.bias.zero_()
        elif isinstance(layer, nn.GRUCell):
            for inward, recurrent in zip(
                layer.weight_ih.chunk(3), layer.weight_hh.chunk(3), strict=True
            ):
                nn.init.xavier_uniform_(inward, generator=generator)
                nn.init.orthogonal_(recurrent, generator=generator)
            layer.bias_ih.zero_()
            layer.bias_hh.zero_()


def elu_mlp(sizes: Sequence[int], *, generator: torch.Generator | None = None) -> nn.Sequential:
    """Return a network ``[..., sizes[0]] -> [..., sizes[-1]]`` with ELU between its layers."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ELU(inplace=True)]
    network = nn.Sequential(*layers[:-1])
    glorot_(network, generator)
    return network


def gaussian_from(raw: Tensor) -> Gaussian:
    """Split ``raw [..., 2·D]`` into a Gaussian over D with σ = softplus(·) + 0.1."""
    mean, spread = raw.chunk(2, dim=-1)
    return Gaussian(mean, (F.softplus(spread) + MIN_STD).log())


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """Let gradients pass through ``modules`` without reaching their parameters."""
    for module in modules:
        module.requires_grad_(False)
    try:
        yield
    finally:
        for module in modules:
            module.requires_grad_(True)
