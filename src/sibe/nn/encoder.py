"""The deterministic encoder φ: stacked frames in, a compact state representation c out.

Four 3×3 convolutions and one fully connected layer (Appendix A). This is where nearly all the
time of an update goes, so pixels stay channels-last from the replay store to the flattened
features and are never copied for the sake of layout, and the division by 255 is moved from
millions of pixels onto the few weights of the first convolution.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sibe.errors import UserError
from sibe.kernels.convolution import out_side
from sibe.nn.chroma import chroma_channels, on_rgb
from sibe.nn.convolution import KERNEL, ConvolutionReLU, convolve_relu
from sibe.nn.init import orthogonal_

RGB = 3
"""Channels of a frame."""


def conv_size(size: int | tuple[int, int], strides: Sequence[int]) -> tuple[int, int]:
    """Return the height and width left of an image of ``size`` after the convolutions."""
    sides = (size, size) if isinstance(size, int) else size
    height, width = sides
    for stride in strides:
        if min(height, width) < KERNEL:
            raise UserError(
                f"an image of {sides[0]}×{sides[1]} is too small for convolutions with strides "
                f"{','.join(map(str, strides))}: use a larger image or smaller strides"
            )
        height, width = (out_side(side, stride) for side in (height, width))
    return height, width


class Encoder(nn.Module):
    """φ: uint8 ``[..., H, W, C]`` -> ``[..., features]``; convolutions, FC, LayerNorm (, tanh).

    ``center`` takes the pixels in -1/2…1/2 instead of 0…1; ``chroma`` their color differences
    alone (see ``on_rgb``); ``smooth`` starts each convolution as a blur instead of a single pixel
    (see ``orthogonal_``).
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        channels: int,
        *,
        features: int = 50,
        filters: int = 32,
        strides: Sequence[int] = (2, 1, 1, 1),
        tanh: bool = False,
        center: bool = False,
        chroma: bool = False,
        smooth: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        height, width = conv_size(size, strides)
        self.features = features
        self.tanh, self.center, self.chroma = tanh, center, chroma
        seen = chroma_channels(channels) if chroma else channels
        self.first = ConvolutionReLU(seen, filters, strides[0])
        # Numbered as when each ReLU was a layer of its own: there are checkpoints from then.
        rest = {
            str(2 * i + 1): ConvolutionReLU(filters, filters, stride)
            for i, stride in enumerate(strides[1:])
        }
        self.rest = nn.Sequential(OrderedDict(rest))
        self.project = nn.Linear(height * width * filters, features)
        self.norm = nn.LayerNorm(features)
        orthogonal_(self, generator, smooth=smooth)

    def forward(self, pixels: Tensor, still: int = 0) -> Tensor:
        """Encode ``pixels`` in 0…255, ``[..., H, W, C]`` with any leading dimensions.

        After them come the first ``still`` states once more as if nothing had moved: each of their
        frames is the newest one.
        """
        if still:
            newest = pixels[:still, ..., -RGB:]
            frames = pixels.shape[-1] // RGB
            pixels = torch.cat((pixels, torch.cat((newest,) * frames, dim=-1)))
        leading = pixels.shape[:-3]
        images = pixels.reshape(-1, *pixels.shape[-3:])
        weight, bias = pixel_weights(self.first, center=self.center, chroma=self.chroma)
        # A contiguous NHWC tensor seen as NCHW *is* channels_last: convolutions keep it so.
        maps = convolve_relu(images.permute(0, 3, 1, 2), weight, bias, self.first.stride[0])
        maps = self.rest(maps)
        # Flattened in the order it lies in memory; this only permutes the FC layer's inputs.
        flat = maps.permute(0, 2, 3, 1).flatten(1).to(self.project.weight.dtype)
        with torch.autocast(pixels.device.type, enabled=False):  # convolutions alone
            c: Tensor = self.norm(self.project(flat))
        return (c.tanh() if self.tanh else c).reshape(*leading, self.features)

    def single(self, states: Tensor) -> Tensor:
        """Encode states uint8 ``[N, H, W, C]`` -> ``[N, features]``."""
        c: Tensor = self(states)
        return c


def pixel_weights(first: ConvolutionReLU, *, center: bool, chroma: bool) -> tuple[Tensor, Tensor]:
    """Return weight and bias with which a first convolution takes pixels in 0…255."""
    # w · (x / 255) = (w / 255) · x: thousands of divisions instead of millions.
    weight, bias = first.weight / 255, first.bias
    assert bias is not None
    if chroma:  # whose mean is 0
        return on_rgb(weight), bias
    if center:  # w · (x / 255 - 1/2), by the bias for the same reason
        bias = bias - 127.5 * weight.sum((1, 2, 3))
    return weight, bias
