"""Several 3×3 convolutions with ReLU in a row, the last one max-pooled over the whole frame.

By ``sibe.kernels.frame_convolutions`` where it can, else by PyTorch, layer after layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sibe.kernels import frame_convolutions as kernels
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
    if not _kernels_help(x, weights, strides):
        maps = x.permute(0, 3, 1, 2)
        for weight, bias, stride in zip(weights[:-1], biases[:-1], strides[:-1], strict=True):
            maps = convolve_relu(maps, weight, bias, stride)
        pooled = convolve_relu(maps, weights[-1], biases[-1], strides[-1])
        return maps.permute(0, 2, 3, 1), pooled.amax((2, 3))
    if torch.is_grad_enabled() and any(w.requires_grad for w in weights):
        maps, peaks = _Convolutions.apply(x, tuple(strides), *weights, *biases)  # type: ignore[no-untyped-call]
        return maps, peaks
    encoded = kernels.convolve(x, weights, biases, strides, keep=False)
    return encoded.maps, encoded.peaks


def _kernels_help(x: Tensor, weights: Sequence[Tensor], strides: Sequence[int]) -> bool:
    return (
        kernels.available()
        and not torch.is_autocast_enabled("cpu")
        and kernels.fits(x, weights, strides)
    )


class _Convolutions(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strides: tuple[int, ...], *parameters: Tensor) -> Any:
        weights, biases = parameters[: len(strides)], parameters[len(strides) :]
        encoded = kernels.convolve(x, weights, biases, strides, keep=True)
        ctx.save_for_backward(x, encoded.peaks, *weights, *encoded.outputs)
        ctx.strides = strides
        return encoded.maps, encoded.peaks

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_maps: Tensor, of_peaks: Tensor) -> tuple[Tensor | None, ...]:
        x, peaks, *rest = ctx.saved_tensors
        weights, outputs = rest[: len(ctx.strides)], tuple(rest[len(ctx.strides) :])
        encoded = kernels.Encoded(outputs[-2], peaks, outputs)
        pairs = kernels.gradients(x, weights, ctx.strides, encoded, of_maps, of_peaks)
        return None, None, *(w for w, _ in pairs), *(b for _, b in pairs)
