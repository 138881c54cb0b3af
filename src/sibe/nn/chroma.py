"""Chroma: what of a pixel's color is left when brightness is taken away.

Where the robot has a color and what is behind it has none (gray clips), the color differences show
the robot alone. They are linear in red, green and blue, so a first convolution that looks at them
is one that looks at RGB, with other weights: no image is converted.
"""

from __future__ import annotations

import torch
from torch import Tensor

_OF_RGB = ((2.0, 0.0, -2.0), (-1.0, 2.0, -1.0))
"""2 (R - B) and 2 (G - (R + B) / 2)"""


def chroma_channels(rgb_channels: int) -> int:
    """Return how many channels of chroma there are to 3 per frame of RGB."""
    return rgb_channels // 3 * 2


def on_rgb(weight: Tensor) -> Tensor:
    """Return ``weight [F, 2·S, 3, 3]``, made for chroma, as one for RGB: ``[F, 3·S, 3, 3]``.

    S is the number of stacked frames.
    """
    of_rgb = torch.tensor(_OF_RGB, dtype=weight.dtype, device=weight.device)
    frames = weight.unflatten(1, (-1, 2))  # [F, S, 2, 3, 3]
    return torch.einsum("fsckl,cd->fsdkl", frames, of_rgb).flatten(1, 2)
