"""How weights start: orthogonal linear layers and delta-orthogonal convolutions.

This is the initialisation of the pixel SAC the paper builds on. Every constructor in this
package that draws weights takes a ``torch.Generator``, so one seed gives one network whatever
else the process has drawn before.
"""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def orthogonal_(module: nn.Module, generator: torch.Generator | None = None) -> None:
    """Initialise every linear and convolutional layer inside ``module`` in place.

    Linear: orthogonal with gain 1. Convolution: zero everywhere but the centre tap, which is
    orthogonal with ReLU's gain √2, so the signal keeps its scale through the stack. Biases: 0.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, generator=generator)
        elif isinstance(layer, nn.Conv2d):
            rows, columns = (side // 2 for side in layer.weight.shape[2:])
            layer.weight.zero_()
            gain = nn.init.calculate_gain("relu")
            nn.init.orthogonal_(layer.weight[:, :, rows, columns], gain, generator=generator)
        else:
            continue
        if layer.bias is not None:
            layer.bias.zero_()
