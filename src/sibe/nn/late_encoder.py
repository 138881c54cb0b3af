"""The encoder φ with late fusion: each frame is encoded by itself, then the stack is combined.

A velocity is a difference between frames. Where the stacked frames enter the first convolution
together, every filter has to find that difference for itself, at every place in the image; here one
set of filters finds the robot in each frame, and a small network compares what was found. States
that overlap in time share their frames, so a chunk of L states costs L + stack - 1 encodings of 3
channels. The last convolution is also max-pooled over the whole image: what a robot looks like (the
angle of a pole) is then learned once for all places, while the flattened maps tell where it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sibe.nn.chroma import chroma_channels
from sibe.nn.convolution import ConvolutionReLU
from sibe.nn.encoder import conv_size, pixel_weights
from sibe.nn.frame_convolutions import convolve_frames
from sibe.nn.init import orthogonal_
from sibe.nn.mlp import mlp

POOLED = 32
"""Channels of the convolution that is max-pooled."""
HIDDEN = 128
"""Width of the network that combines the frames."""


class LateFusionEncoder(nn.Module):
    """φ: frames uint8 ``[T + stack - 1, B, H, W, C]`` -> states ``[T, B, features]``.

    Args:
        size: height and width of a frame.
        channels: C, of one frame.
        stack: frames that make a state.
        features, filters, strides, tanh, center, chroma, smooth, generator: as for ``Encoder``;
            one convolution per stride, and the max-pooled one after them.
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        channels: int,
        *,
        stack: int,
        features: int = 50,
        filters: int = 16,
        strides: Sequence[int] = (2, 2, 1),
        tanh: bool = False,
        center: bool = False,
        chroma: bool = False,
        smooth: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        conv_size(size, (*strides, 1))  # refuses what is too small for the pooled convolution
        height, width = conv_size(size, strides)
        self.stack, self.features, self.tanh = stack, features, tanh
        self.center, self.chroma = center, chroma
        self.strides = (*strides, 1)
        seen = chroma_channels(channels) if chroma else channels
        self.first = ConvolutionReLU(seen, filters, strides[0])
        self.rest = nn.Sequential(
            *(ConvolutionReLU(filters, filters, stride) for stride in strides[1:])
        )
        self.pooled = ConvolutionReLU(filters, POOLED, 1)
        self.place = nn.Linear(height * width * filters, features)
        self.shape_norm, self.place_norm = nn.LayerNorm(POOLED), nn.LayerNorm(features)
        for part in (self.first, self.rest, self.place):
            orthogonal_(part, generator, smooth=smooth)
        # All taps: a filter that starts as a blur cannot tell one orientation from another.
        nn.init.orthogonal_(self.pooled.weight, math.sqrt(2), generator=generator)
        assert self.pooled.bias is not None
        nn.init.zeros_(self.pooled.bias)
        sizes = (stack * (POOLED + features), HIDDEN, features)
        self.combine = mlp(sizes, layer_norm=True, generator=generator)

    def forward(self, frames: Tensor, still: int = 0) -> Tensor:
        """Encode T overlapping states, given the frames they are made of, oldest first.

        After them, ``[T + still, B, features]``, come the first ``still`` states once more as if
        nothing had moved: what their newest frame alone tells.
        """
        maps, peaks = self._convolve(frames.flatten(0, 1))
        # The rest is small: under autocast it keeps its precision, and c with it.
        exact = self.place.weight.dtype
        with torch.autocast(frames.device.type, enabled=False):
            encoded = self._frame_features(maps.to(exact), peaks.to(exact))
            return self._combine(encoded.unflatten(0, frames.shape[:2]), still)

    def single(self, states: Tensor) -> Tensor:
        """Encode states that do not overlap, uint8 ``[N, H, W, C·stack]`` -> ``[N, features]``."""
        frames = states.unflatten(-1, (self.stack, -1)).permute(3, 0, 1, 2, 4)
        c: Tensor = self(frames.contiguous())[0]
        return c

    def _combine(self, encoded: Tensor, still: int) -> Tensor:
        """Combine encoded frames ``[T + stack - 1, B, POOLED + features]`` to states."""
        states = len(encoded) - self.stack + 1
        # The newest frame, and how each frame differs from the one before it.
        newest = encoded[self.stack - 1 :]
        changes = encoded[1:] - encoded[:-1]
        parts = [newest, *(changes[lag : lag + states] for lag in reversed(range(self.stack - 1)))]
        seen = torch.cat(parts, dim=-1)
        if still:
            unmoved = nn.functional.pad(newest[:still], (0, seen.shape[-1] - newest.shape[-1]))
            seen = torch.cat((seen, unmoved))
        c: Tensor = self.combine(seen)
        return c.tanh() if self.tanh else c

    def _convolve(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Return maps ``[N, h, w, F]`` and peaks ``[N, POOLED]`` of frames ``[N, H, W, C]``."""
        first = pixel_weights(self.first, center=self.center, chroma=self.chroma)
        layers = [first, *((conv.weight, conv.bias) for conv in (*self.rest, self.pooled))]
        weights, biases = zip(*layers, strict=True)
        return convolve_frames(frames, weights, biases, self.strides)

    def _frame_features(self, maps: Tensor, peaks: Tensor) -> Tensor:
        """Return what single frames show, ``[N, POOLED + features]``."""
        shape = self.shape_norm(peaks)
        place = self.place_norm(self.place(maps.flatten(1)))
        return torch.cat((shape, place), dim=-1)
