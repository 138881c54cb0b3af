"""Single convolutions with a 3×3 kernel: what of them this machine does faster by ``kernels.c``.

PyTorch's convolutions are at the processor's limit going forward, but with AVX2 their weight
gradient runs at a third to a half of it, and bytes must become floats in memory first. With
AVX-512 PyTorch has other kernels; there, nothing here is used.
"""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from sibe.kernels.library import at, functions, library

KERNEL = 3
_FILTERS = 16  # those that are computed together
_WIDEST = 1 << 16  # numbers in a row of an image: a few rows are kept on the stack


class _Shape(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            *("images", "height", "width", "channels"),
            *("stride", "out_height", "out_width", "filters"),
        )
    )


@functools.cache
def available() -> bool:
    """Whether this machine has the functions and gains by them."""
    return torch.backends.cpu.get_cpu_capability() == "AVX2" and library() is not None


def fits(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Whether the functions can do ``x [N, C, H, W]``, weight ``[F, C, 3, 3]``, bias ``[F]``."""
    (_, channels, height, width), filters = x.shape, len(weight)
    return (
        weight.shape == (filters, channels, KERNEL, KERNEL)
        and bias.shape == (filters,)
        and filters % _FILTERS == 0
        and min(height, width) >= KERNEL
        and width * max(channels, filters) <= _WIDEST
    )


def out_side(side: int, stride: int) -> int:
    """Return what a convolution leaves of a ``side`` of an image."""
    return (side - KERNEL) // stride + 1


def convolve_bytes(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """Convolve images of bytes, and put the result through ReLU.

    Args:
        x: uint8 ``[N, C, H, W]``, channels last in memory.
        weight: float32 ``[F, C, 3, 3]``.
        bias: float32 ``[F]``.
        stride: of the kernel, both ways.

    Returns:
        float32 ``[N, F, h, w]``, channels last in memory.
    """
    images, _, height, width = x.shape
    size = (images, len(weight), out_side(height, stride), out_side(width, stride))
    y = torch.empty(size, memory_format=torch.channels_last)
    filters, bias = weight.permute(2, 3, 1, 0).contiguous(), bias.contiguous()  # [3, 3, C, F]
    functions().sibe_convolve_bytes(at(x), at(filters), at(bias), at(y), *_shape(x, y, stride))
    return y


def weight_gradient(
    x: Tensor, gradient: Tensor, y: Tensor, stride: int, *, passed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the gradients of weight ``[F, C, 3, 3]`` and bias ``[F]`` of a convolution and ReLU.

    Args:
        x: the input, uint8 or float32 ``[N, C, H, W]``, channels last in memory.
        gradient: of the output, float32 ``[N, F, h, w]``, channels last in memory.
        y: the output, like its gradient.
        stride: of the kernel, both ways.
        passed: if given, is filled with what of the gradient passes the ReLU; like the gradient.
    """
    channels, filters = x.shape[1], gradient.shape[1]
    # A sum of each thread's own; the bias comes last.
    sums = torch.zeros(torch.get_num_threads(), KERNEL**2 * channels + 1, filters)
    of_bytes, kept = int(x.dtype == torch.uint8), None if passed is None else at(passed)
    where = (at(x), of_bytes, at(gradient), at(y), kept, at(sums))
    functions().sibe_weight_gradient(*where, *_shape(x, gradient, stride))
    total = sums.sum(0)
    weight = total[:-1].view(KERNEL, KERNEL, channels, filters).permute(3, 2, 0, 1)
    return weight, total[-1]


def _shape(x: Tensor, y: Tensor, stride: int) -> tuple[object, int]:
    """Return the last arguments of each function: the sizes, and how many threads."""
    (images, channels, *size), (_, filters, *out_size) = x.shape, y.shape
    shape = _Shape(images, *size, channels, stride, *out_size, filters)
    return ctypes.byref(shape), torch.get_num_threads()
