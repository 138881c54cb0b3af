"""Fully connected layers with ReLU between them, of one network or several on the same input.

``sibe.kernels.fully_connected`` for autograd. Where it does not help, PyTorch goes layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sibe.kernels import fully_connected as kernels

Layers = Sequence[nn.Linear]


def kernels_help(x: Tensor, layers: Layers) -> bool:
    """Whether ``connect`` can be used for ``x [..., in]`` and networks like this one."""
    return (
        kernels.available()
        and len(layers) > 1
        and kernels.fits(x, [layer.weight for layer in layers])
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def connect(x: Tensor, *networks: Layers) -> Tensor:
    """Return what each network makes of x: ``[networks, ..., out]``.

    Args:
        x: ``[..., in]``.
        networks: the layers of each, of the same sizes in all; ReLU comes between them.
    """
    layers = [layer for network in networks for layer in network]
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
    samples = x.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled() and (x.requires_grad or weights[0].requires_grad):
        y: Tensor = _Networks.apply(samples, len(networks), *weights, *biases)  # type: ignore[no-untyped-call]
    else:
        y, _ = kernels.forward(samples, weights, biases, len(networks))
    return y.view(len(networks), *x.shape[:-1], -1)


class _Networks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, networks: int, *parameters: Tensor) -> Any:
        half = len(parameters) // 2
        weights, biases = parameters[:half], parameters[half:]
        y, kept = kernels.forward(x, weights, biases, networks)
        ctx.save_for_backward(kept, *weights)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        kept, *weights = ctx.saved_tensors
        of_input, _, *of_parameters = ctx.needs_input_grad
        found = kernels.gradients(
            g, kept, weights, of_weights=any(of_parameters), of_input=of_input
        )
        parameters = (*found.of_weights, *found.of_biases) or (None,) * len(of_parameters)
        return found.of_input, None, *parameters
