"""How weights start: orthogonal linear layers and delta-orthogonal convolutions.

This is the initialization of the pixel SAC the paper builds on. Every constructor in this
package that draws weights takes a ``torch.Generator``, so one seed gives one network whatever
else the process has drawn before.
"""

from __future__ import annotations

import math

import torch
from torch import nn


@torch.no_grad()
def orthogonal_(
    module: nn.Module, generator: torch.Generator | None = None, *, smooth: bool = False
) -> None:
    """Initialize every linear and convolutional layer inside ``module`` in place.

    Linear: orthogonal with gain 1. Convolution: zero everywhere but the center tap, which is
    orthogonal with ReLU's gain √2, so the signal keeps its scale through the stack. Biases: 0.

    A center tap looks at one pixel in each stride, which under white noise is one sample of the
    noise. With ``smooth`` that matrix is spread over the kernel by binomial weights (1 2 1 in
    each direction): constants pass as before, noise is averaged away layer by layer.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, generator=generator)
        elif isinstance(layer, nn.Conv2d):
            rows, columns = (side // 2 for side in layer.weight.shape[2:])
            layer.weight.zero_()
            gain = nn.init.calculate_gain("relu")
            center = layer.weight[:, :, rows, columns]
            nn.init.orthogonal_(center, gain, generator=generator)
            if smooth:
                layer.weight.copy_(center[:, :, None, None] * _binomial(layer.weight.shape[2:]))
        else:
            continue
        if layer.bias is not None:
            layer.bias.zero_()


def _binomial(shape: torch.Size) -> torch.Tensor:
    """Return binomial weights ``[rows, columns]`` that sum to 1."""
    rows, columns = (
        torch.tensor([math.comb(side - 1, i) for i in range(side)], dtype=torch.float32)
        for side in shape
    )
    return torch.outer(rows, columns) / (rows.sum() * columns.sum())
