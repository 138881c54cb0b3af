"""The convolutions of the late-fusion encoder in bfloat16, by ``half_convolutions.c``.

For processors that multiply and add two bfloat16 at once (AVX512_BF16): AMD's since Zen 4, some of
Intel's Xeons. Weights and what goes from layer to layer are rounded to bfloat16, as
autocast does on a GPU; sums are float32, and so are the weights that the optimizer sees.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from sibe.kernels import frame_convolutions
from sibe.kernels.convolution import KERNEL
from sibe.kernels.frame_convolutions import (
    Encoded,
    Layer,
    all_at,
    layers_of,
    scratch_for,
    sizes_and_threads,
)
from sibe.kernels.library import at, functions

_BLOCK = 16


@functools.cache
def available() -> bool:
    """Whether this machine has the functions and the instruction they need."""
    return frame_convolutions.available() and bool(functions().sibe_has_halves())


def convolve(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    strides: Sequence[int],
    *,
    keep: bool,
) -> Encoded:
    """Take frames through all layers; arguments as for ``frame_convolutions.convolve``.

    The outputs that are kept are bfloat16, but for those of the last layer.
    """
    layers, images = layers_of(x, weights, strides), len(x)
    scratch = scratch_for(layers)
    outputs = [
        torch.empty(images, *layer.out_shape, dtype=torch.bfloat16) if keep else None
        for layer in layers[:-1]
    ]
    last = torch.empty(images, *layers[-1].out_shape) if keep else None
    maps = torch.empty(images, *layers[-2].out_shape)
    peaks = torch.empty(images, layers[-1].filters)
    filters = [_by_channel_pairs(w) for w in weights]
    biases = [b.contiguous() for b in biases]
    functions().sibe_convolve_halves(
        at(x),
        all_at(filters),
        all_at(biases),
        all_at(outputs),
        *(at(maps), None if last is None else at(last), at(peaks)),
        *sizes_and_threads(scratch, layers, images),
    )
    kept = tuple(y for y in (*outputs, last) if y is not None)
    return Encoded(maps, peaks, kept)


def gradients(
    x: Tensor,
    weights: Sequence[Tensor],
    strides: Sequence[int],
    encoded: Encoded,
    of_maps: Tensor,
    of_peaks: Tensor,
) -> list[tuple[Tensor, Tensor]]:
    """Return the gradients of weight and bias of each layer.

    Arguments as for ``frame_convolutions.gradients``.
    """
    layers, images = layers_of(x, weights, strides), len(x)
    sizes = [size for layer in layers for size in (layer.weight_size, layer.filters)]
    sums = torch.zeros(torch.get_num_threads(), sum(sizes))  # each thread's own
    *outputs, last = encoded.outputs
    transposed = [None, *(_by_filter_pairs(w) for w in weights[1:-1])]  # of the pixels: not wanted
    pooled = weights[-1].to(torch.bfloat16).float()
    transposed.append(pooled.permute(0, 2, 3, 1).contiguous())  # [P, 3, 3, C]
    of_maps, of_peaks = of_maps.contiguous(), of_peaks.contiguous()
    scratch, paired = scratch_for(layers), _gradient_scratch(layers)
    functions().sibe_half_gradients(
        at(x),
        all_at(transposed),
        all_at(outputs),
        *(at(tensor) for tensor in (encoded.maps, last, encoded.peaks, of_maps, of_peaks, sums)),
        ctypes.c_int64(sum(sizes)),
        *(at(paired), ctypes.c_int64(paired.shape[1])),
        *sizes_and_threads(scratch, layers, images),
    )
    parts = iter(sums.sum(0).split(sizes))
    return [
        (_as_weight(next(parts), layer, i, len(layers)), next(parts))
        for i, layer in enumerate(layers)
    ]


def _by_channel_pairs(weight: Tensor) -> Tensor:
    """Return weight ``[F, C, 3, 3]`` as bfloat16 ``[3, half of 3·C, F, 2]``, filled up with 0."""
    flat = weight.permute(2, 3, 1, 0).flatten(1, 2)  # [3, 3·C, F]
    flat = pad(flat, (0, 0, 0, flat.shape[1] % 2))
    pairs: Tensor = flat.unflatten(1, (-1, 2)).transpose(2, 3)
    return pairs.to(torch.bfloat16, memory_format=torch.contiguous_format)


def _by_filter_pairs(weight: Tensor) -> Tensor:
    """Return weight ``[F, C, 3, 3]`` as bfloat16 ``[3, 3, half of F, C, 2]``."""
    pairs: Tensor = weight.permute(2, 3, 0, 1).unflatten(2, (-1, 2)).transpose(3, 4)
    return pairs.to(torch.bfloat16, memory_format=torch.contiguous_format)


def _gradient_scratch(layers: Sequence[Layer]) -> Tensor:
    """Return room for a layer's gradient, twice, and for its inputs in pairs; for each thread."""
    size = 0
    for layer in layers[1:-1]:
        across = (layer.out_width + 1) // 2
        by_pair = 2 * layer.out_height * across * layer.filters
        paired = 2 * layer.height * across * _BLOCK
        size = max(size, layer.out_size + by_pair + paired)
    return torch.empty(torch.get_num_threads(), size, dtype=torch.bfloat16)


def _as_weight(flat: Tensor, layer: Layer, i: int, number: int) -> Tensor:
    channels, filters = layer.channels, layer.filters
    if i == number - 1:
        return flat.view(filters, KERNEL, KERNEL, channels).permute(0, 3, 1, 2)
    if i == 0:
        return flat.view(KERNEL, KERNEL, channels, filters).permute(3, 2, 0, 1)
    return flat.view(KERNEL, KERNEL, filters, channels).permute(2, 3, 0, 1)
