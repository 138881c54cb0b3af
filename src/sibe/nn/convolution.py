"""A 3×3 convolution with ReLU that learns at the processor's speed where ``sibe.kernels`` helps.

Forward is PyTorch's, unless the input is bytes; so is the gradient of the input. The gradient of
the weights, and the ReLU's on the way there, come from ``sibe.kernels``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from sibe.kernels import convolution as kernels

KERNEL = kernels.KERNEL


class ConvolutionReLU(nn.Conv2d):
    """``nn.Conv2d`` with a 3×3 kernel, one stride for both ways and no padding, and ReLU."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__(channels, filters, KERNEL, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return ReLU(w · x + b) ``[N, F, h, w]`` for ``x [N, C, H, W]``."""
        assert self.bias is not None
        return convolve_relu(x, self.weight, self.bias, self.stride[0])


def convolve_relu(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """Return ReLU(w · x + b) ``[N, F, h, w]``.

    Args:
        x: floats or bytes ``[N, C, H, W]``.
        weight: ``[F, C, 3, 3]``.
        bias: ``[F]``.
        stride: of the kernel, both ways.
    """
    if _kernels_help(x, weight, bias):
        y: Tensor = _ConvolutionReLU.apply(x, weight, bias, stride)  # type: ignore[no-untyped-call]
        return y
    x = x if x.is_floating_point() else x.to(weight.dtype)
    return F.relu_(F.conv2d(x, weight, bias, stride))


def _kernels_help(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    learns = torch.is_grad_enabled() and weight.requires_grad
    return (
        (x.dtype == torch.uint8 or (learns and x.dtype == torch.float32))
        and weight.dtype == bias.dtype == torch.float32
        and x.device.type == weight.device.type == bias.device.type == "cpu"
        and x.is_contiguous(memory_format=torch.channels_last)
        and not torch.is_autocast_enabled("cpu")
        and kernels.fits(x, weight, bias)
        and kernels.available()
    )


class _ConvolutionReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
        if x.dtype == torch.uint8:
            y = kernels.convolve_bytes(x, weight, bias, stride)
        else:
            y = F.relu_(F.conv2d(x, weight, bias, stride))
        # With one channel PyTorch cannot tell how x lies in memory, and may choose the other way.
        y = y.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight, y)
        ctx.stride = stride
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight, y), stride = ctx.saved_tensors, ctx.stride
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        if not ctx.needs_input_grad[0]:
            return None, *kernels.weight_gradient(x, gradient, y, stride), None
        passed = torch.empty_like(gradient)
        of_weight, of_bias = kernels.weight_gradient(x, gradient, y, stride, passed=passed)
        return _input_gradient(x, weight, passed, stride), of_weight, of_bias, None


def _input_gradient(x: Tensor, weight: Tensor, gradient: Tensor, stride: int) -> Tensor:
    geometry = ([stride, stride], [0, 0], [1, 1], False, [0, 0], 1)
    of_x: Tensor = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, *geometry, [True, False, False]
    )[0]
    return of_x
