"""The convolutions of the late-fusion encoder by ``frame_convolutions.c``.

PyTorch takes all frames through one layer after the other: what lies between the layers goes out to
memory and comes back. Here one frame at a time goes through all layers, forward and back, within a
core's cache. The last layer is max-pooled over the whole frame, so that its gradient comes from one
place of each filter, not from all.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sibe.kernels.convolution import KERNEL, out_side
from sibe.kernels.library import at, functions, library

_BLOCK = 16  # filters, or channels, that are computed together


class Layer(ctypes.Structure):
    """The sizes of a layer."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            *("height", "width", "channels", "stride"),
            *("out_height", "out_width", "filters"),
        )
    )

    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    filters: int

    @property
    def out_shape(self) -> tuple[int, int, int]:
        """Height, width, filters."""
        return self.out_height, self.out_width, self.filters

    @property
    def out_size(self) -> int:
        """How many numbers a frame has after the layer."""
        return self.out_height * self.out_width * self.filters

    @property
    def weight_size(self) -> int:
        """How many weights the layer has."""
        return KERNEL**2 * self.channels * self.filters


class Encoded(NamedTuple):
    """What becomes of N frames."""

    maps: Tensor
    """float32 ``[N, h, w, F]``: the output of the last layer but one"""
    peaks: Tensor
    """float32 ``[N, P]``: the largest output of each filter of the last layer"""
    outputs: tuple[Tensor, ...]
    """of all layers, ``[N, h, w, F]`` each; empty if they were not kept"""


@functools.cache
def available() -> bool:
    """Whether this machine has the functions and gains by them."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") and library() is not None


def fits(x: Tensor, weights: Sequence[Tensor], strides: Sequence[int]) -> bool:
    """Whether the functions can do frames ``[N, H, W, C]`` and weights ``[F, C, 3, 3]``."""
    layers = layers_of(x, weights, strides)
    return (
        x.dtype == torch.uint8
        and x.device.type == "cpu"
        and x.is_contiguous()
        and all(w.dtype == torch.float32 and w.device == x.device for w in weights)
        and all(
            w.shape == (layer.filters, layer.channels, KERNEL, KERNEL)
            and layer.filters % _BLOCK == 0
            and min(layer.height, layer.width) >= KERNEL
            for w, layer in zip(weights, layers, strict=True)
        )
    )


def convolve(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    strides: Sequence[int],
    *,
    keep: bool,
) -> Encoded:
    """Take frames through all layers, each with ReLU, and the last one to its peaks.

    Args:
        x: uint8 ``[N, H, W, C]``.
        weights: float32 ``[F, C, 3, 3]`` of each layer, two layers at least.
        biases: float32 ``[F]`` of each.
        strides: of each.
        keep: whether the outputs of all layers are wanted, for ``gradients``.
    """
    layers, images = layers_of(x, weights, strides), len(x)
    scratch = scratch_for(layers)
    maps = len(layers) - 2
    outputs = [
        torch.empty(images, *layer.out_shape) if keep or i == maps else None
        for i, layer in enumerate(layers)
    ]
    peaks = torch.empty(images, layers[-1].filters)
    filters = [w.permute(2, 3, 1, 0).contiguous() for w in weights]  # [3, 3, C, F]
    biases = [b.contiguous() for b in biases]
    functions().sibe_convolve_frames(
        at(x),
        all_at(filters),
        all_at(biases),
        all_at(outputs),
        at(peaks),
        *sizes_and_threads(scratch, layers, images),
    )
    kept = tuple(y for y in outputs if y is not None)
    return Encoded(kept[maps if keep else 0], peaks, kept if keep else ())


def gradients(
    x: Tensor,
    weights: Sequence[Tensor],
    strides: Sequence[int],
    encoded: Encoded,
    of_maps: Tensor,
    of_peaks: Tensor,
) -> list[tuple[Tensor, Tensor]]:
    """Return the gradients of weight and bias of each layer.

    Args:
        x, weights, strides: as for ``convolve``.
        encoded: what that returned, kept.
        of_maps, of_peaks: the gradients of its maps and peaks.
    """
    layers, images = layers_of(x, weights, strides), len(x)
    scratch = scratch_for(layers)
    sizes = [size for layer in layers for size in (layer.weight_size, layer.filters)]
    sums = torch.zeros(torch.get_num_threads(), sum(sizes))  # each thread's own
    transposed = [w.permute(2, 3, 0, 1).contiguous() for w in weights[:-1]]  # [3, 3, F, C]
    transposed.append(weights[-1].permute(0, 2, 3, 1).contiguous())  # [P, 3, 3, C]
    of_maps, of_peaks = of_maps.contiguous(), of_peaks.contiguous()
    functions().sibe_frame_gradients(
        at(x),
        all_at(transposed),
        all_at(encoded.outputs),
        at(encoded.peaks),
        at(of_maps),
        at(of_peaks),
        at(sums),
        ctypes.c_int64(sum(sizes)),
        *sizes_and_threads(scratch, layers, images),
    )
    parts = iter(sums.sum(0).split(sizes))
    return [
        (_as_weight(next(parts), layer, pooled=layer is layers[-1]), next(parts))
        for layer in layers
    ]


def _as_weight(flat: Tensor, layer: Layer, *, pooled: bool) -> Tensor:
    channels, filters = layer.channels, layer.filters
    if pooled:
        return flat.view(filters, KERNEL, KERNEL, channels).permute(0, 3, 1, 2)
    return flat.view(KERNEL, KERNEL, channels, filters).permute(3, 2, 0, 1)


def layers_of(x: Tensor, weights: Sequence[Tensor], strides: Sequence[int]) -> list[Layer]:
    """Return the sizes of each layer, for the arguments of ``fits``."""
    _, height, width, channels = x.shape
    layers = []
    for weight, stride in zip(weights, strides, strict=True):
        out = out_side(height, stride), out_side(width, stride)
        layers.append(Layer(height, width, channels, stride, *out, len(weight)))
        (height, width), channels = out, len(weight)
    return layers


def scratch_for(layers: list[Layer]) -> Tensor:
    """Return room for one input and all outputs of a frame, for each thread."""
    first = layers[0]
    size = first.height * first.width * first.channels + sum(layer.out_size for layer in layers)
    return torch.empty(torch.get_num_threads(), size)


def sizes_and_threads(scratch: Tensor, layers: list[Layer], images: int) -> tuple[object, ...]:
    """Return the last arguments of both functions: scratch, layers, images, threads."""
    threads, size = scratch.shape
    table = (Layer * len(layers))(*layers)
    return (
        *(at(scratch), ctypes.c_int64(size), table, len(layers)),
        *(ctypes.c_int64(images), threads),
    )


def all_at(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    """Return where each of the tensors begins; the null pointer for None."""
    places = (t if t is None else t.data_ptr() for t in tensors)
    return (ctypes.c_void_p * len(tensors))(*places)
