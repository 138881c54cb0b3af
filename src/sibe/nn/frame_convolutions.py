"""Several 3×3 convolutions with ReLU in a row, the last one max-pooled over the whole frame.

By ``sibe.kernels.frame_convolutions`` where it can, under autocast by
``sibe.kernels.half_convolutions``, else by PyTorch, layer after layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sibe.kernels import frame_convolutions, half_convolutions
from sibe.nn.convolution import convolve_relu


def convolve_frames(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], strides: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return the maps of the last layer but one ``[N, h, w, F]`` and the peaks ``[N, P]``.

    Args:
        x: uint8 ``[N, H, W, C]``.
        weights: ``[F, C, 3, 3]`` of each layer, two layers at least.
        biases: ``[F]`` of each.
        strides: of each, both ways.
    """
    kernels = _kernels_for(x, weights, strides)
    if kernels is None:
        maps = x.permute(0, 3, 1, 2)
        for weight, bias, stride in zip(weights[:-1], biases[:-1], strides[:-1], strict=True):
            maps = convolve_relu(maps, weight, bias, stride)
        pooled = convolve_relu(maps, weights[-1], biases[-1], strides[-1])
        return maps.permute(0, 2, 3, 1), pooled.amax((2, 3))
    if torch.is_grad_enabled() and any(w.requires_grad for w in weights):
        maps, peaks = _Convolutions.apply(kernels, x, tuple(strides), *weights, *biases)  # type: ignore[no-untyped-call]
        return maps, peaks
    encoded = kernels.convolve(x, weights, biases, strides, keep=False)
    return encoded.maps, encoded.peaks


def _kernels_for(x: Tensor, weights: Sequence[Tensor], strides: Sequence[int]) -> ModuleType | None:
    half = torch.is_autocast_enabled("cpu")
    if half and torch.get_autocast_dtype("cpu") != torch.bfloat16:
        return None
    kernels = half_convolutions if half else frame_convolutions
    return kernels if kernels.available() and frame_convolutions.fits(x, weights, strides) else None


class _Convolutions(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernels: Any, x: Tensor, strides: tuple[int, ...], *parameters: Tensor
    ) -> Any:
        weights, biases = parameters[: len(strides)], parameters[len(strides) :]
        encoded = kernels.convolve(x, weights, biases, strides, keep=True)
        ctx.save_for_backward(x, encoded.maps, encoded.peaks, *weights, *encoded.outputs)
        ctx.strides, ctx.kernels = strides, kernels
        return encoded.maps, encoded.peaks

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_maps: Tensor, of_peaks: Tensor) -> tuple[Tensor | None, ...]:
        x, maps, peaks, *rest = ctx.saved_tensors
        weights, outputs = rest[: len(ctx.strides)], tuple(rest[len(ctx.strides) :])
        encoded = frame_convolutions.Encoded(maps, peaks, outputs)
        pairs = ctx.kernels.gradients(x, weights, ctx.strides, encoded, of_maps, of_peaks)
        return None, None, None, *(w for w, _ in pairs), *(b for _, b in pairs)
