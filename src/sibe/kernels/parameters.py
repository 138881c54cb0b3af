"""What is done to every parameter, for all tensors in one call, by ``parameters.c``.

PyTorch's fused and ``_foreach`` functions still take a few microseconds a tensor on a CPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from sibe.kernels.library import all_at, functions, library

_MOST = 1 << 20  # numbers in all: beyond, PyTorch's threads are faster


def available() -> bool:
    """Whether this machine has the functions."""
    return library() is not None


def fits(parameters: Sequence[Tensor], *others: Sequence[Tensor]) -> bool:
    """Whether the functions can go through all of them, number by number, in the order of memory.

    No parameter may have gaps; those of PyTorch's modules have none.
    """
    return (
        available()
        and sum(p.numel() for p in parameters) <= _MOST
        and all(_on_cpu(p) for p in parameters)
        and all(
            _on_cpu(o) and o.stride() == p.stride()
            for some in others
            for p, o in zip(parameters, some, strict=True)
        )
    )


def _on_cpu(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def adam(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """Do one step of Adam, in place.

    Args:
        parameters, gradients: the weights, and the gradient of each.
        means, squares: the running means of gradients and of their squares.
        steps: how many steps were made before, a scalar for each.
        lr, betas, eps: as for ``torch.optim.Adam``.
    """
    functions().sibe_adam(
        *(all_at(some) for some in (parameters, gradients, means, squares, steps)),
        *_sizes(parameters),
        *(ctypes.c_double(number) for number in (lr, *betas, eps)),
    )


def lerp(targets: Sequence[Tensor], online: Sequence[Tensor], tau: float) -> None:
    """Move the targets towards the others by the share ``tau`` of the way, in place."""
    functions().sibe_lerp(all_at(targets), all_at(online), *_sizes(targets), ctypes.c_double(tau))


def _sizes(tensors: Sequence[Tensor]) -> tuple[ctypes.Array[ctypes.c_int64], int]:
    sizes = (ctypes.c_int64 * len(tensors))(*(t.numel() for t in tensors))
    return sizes, len(tensors)
