"""Frames to embeddings and back: Dreamer's convolutions, for any size of image from 32 on.

The encoder halves the image with 4×4 convolutions of stride 2, four of them, or three where the
image is too small for four; at 64×64 and depth 32 the embedding has 1024 entries. The decoder is
its mirror image. Pixels are seen as x/255 - 1/2.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from sibe.agents.plan2explore.networks import glorot_
from sibe.errors import UserError

KERNEL, STRIDE, MOST_LAYERS = 4, 2, 4
SMALLEST = 32


def map_sizes(size: int) -> list[int]:
    """Return the side of the image and of each feature map after it, e.g. 64, 31, 14, 6, 2."""
    if size < SMALLEST:
        raise UserError(
            f"an image of {size}×{size} is too small for plan2explore: "
            f"use --size {SMALLEST} or more"
        )
    sides = [size]
    while len(sides) <= MOST_LAYERS and sides[-1] >= KERNEL:
        sides.append((sides[-1] - KERNEL) // STRIDE + 1)
    return sides


def to_float(pixels: Tensor) -> Tensor:
    """Return x/255 - 1/2 for uint8 pixels of any shape."""
    return pixels.to(torch.get_default_dtype()).div_(255).sub_(0.5)


class ConvEncoder(nn.Module):
    """Images ``[..., H, W, 3]`` as ``to_float`` gives them -> embeddings ``[..., size]``."""

    def __init__(self, size: int, depth: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        sides = map_sizes(size)
        channels = [3, *(depth * 2**i for i in range(len(sides) - 1))]
        self.layers = nn.Sequential()
        for fan_in, fan_out in pairwise(channels):
            self.layers.append(nn.Conv2d(fan_in, fan_out, KERNEL, STRIDE))
            self.layers.append(nn.ReLU(inplace=True))
        self.size = sides[-1] ** 2 * channels[-1]
        glorot_(self, generator)

    def forward(self, images: Tensor) -> Tensor:
        """Encode ``images``; a contiguous NHWC tensor seen as NCHW is channels_last."""
        maps = images.reshape(-1, *images.shape[-3:]).permute(0, 3, 1, 2)
        flat: Tensor = self.layers(maps).permute(0, 2, 3, 1).flatten(1)
        return flat.reshape(*images.shape[:-3], self.size)


class ConvDecoder(nn.Module):
    """Features ``[..., D]`` -> means of the pixels ``[..., H, W, 3]``."""

    def __init__(
        self, features: int, size: int, depth: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        sides = map_sizes(size)
        channels = [3, *(depth * 2**i for i in range(len(sides) - 1))]
        self._shape = (sides[-1], sides[-1], channels[-1])
        self.project = nn.Linear(features, sides[-1] ** 2 * channels[-1])
        self.layers = nn.Sequential()
        for i in range(len(sides) - 1, 0, -1):
            grown = (sides[i] - 1) * STRIDE + KERNEL
            self.layers.append(
                nn.ConvTranspose2d(
                    *(channels[i], channels[i - 1], KERNEL, STRIDE),
                    output_padding=sides[i - 1] - grown,
                )
            )
            self.layers.append(nn.ReLU(inplace=True))
        self.layers.pop(-1)
        glorot_(self, generator)

    def forward(self, features: Tensor) -> Tensor:
        """Decode ``features`` with any leading dimensions."""
        maps = self.project(features).reshape(-1, *self._shape).permute(0, 3, 1, 2)
        images: Tensor = self.layers(maps).permute(0, 2, 3, 1)
        return images.reshape(*features.shape[:-1], *images.shape[1:])
