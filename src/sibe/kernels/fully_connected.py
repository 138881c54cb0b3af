"""Networks of fully connected layers by ``fully_connected.c``: one call forward, one back.

With minibatches and layers as small as the ``cpu`` preset's, PyTorch spends as long on getting from
one operation to the next as on the arithmetic. Here a few samples at a time go through all layers
within a core's cache. The result does not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sibe.kernels.library import all_at, at, functions, library

_SMALLEST_BATCH = 32  # below, panels would be mostly empty
_WIDEST = 512  # beyond, the weights of a layer leave the cache, and PyTorch is faster


class Gradients(NamedTuple):
    """Those that were asked for."""

    of_input: Tensor | None
    """``[N, D]``"""
    of_weights: list[Tensor]
    of_biases: list[Tensor]


@functools.cache
def available() -> bool:
    """Whether this machine has the functions and gains by them."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") and library() is not None


def fits(x: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether the functions can do ``x [..., D]`` and weights ``[out, in]`` of one network."""
    return (
        x.dim() > 1
        and x.shape[-1] == weights[0].shape[1]
        and x.numel() >= _SMALLEST_BATCH * x.shape[-1]
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and all(
            w.dtype == torch.float32 and w.is_contiguous() and max(w.shape) <= _WIDEST
            for w in weights
        )
    )


def forward(
    x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], networks: int
) -> tuple[Tensor, Tensor]:
    """Return y ``[networks, N, out]``, and the inputs of all layers, for ``gradients``.

    Args:
        x: ``[N, D]``, for all networks.
        weights, biases: of all layers of the first network, then of the next, of the same sizes.
        networks: how many there are.
    """
    x, samples = x.contiguous(), len(x)
    sizes = _sizes(weights, networks)
    kept = torch.empty((sizes[0] + networks * sum(sizes[1:-1])) * _padded(samples))
    y = torch.empty(networks, samples, sizes[-1])
    functions().sibe_networks(
        *(at(x), all_at(weights), all_at(biases)),
        *_shape(sizes, networks, samples),
        *(at(kept), at(y), torch.get_num_threads()),
    )
    return y, kept


def gradients(
    g: Tensor, kept: Tensor, weights: Sequence[Tensor], *, of_weights: bool, of_input: bool
) -> Gradients:
    """Return the gradients of weights and biases, and that of x, if they are asked for.

    Args:
        g: the gradient of y, ``[networks, N, out]``.
        kept: the inputs of all layers.
        weights: as for ``forward``.
        of_weights: else the lists are empty.
        of_input: else that is None.
    """
    g, (networks, samples, _) = g.contiguous(), g.shape
    sizes, padded = _sizes(weights, networks), _padded(samples)
    room = torch.empty(networks * padded * sum(sizes[1:] + [_padded(n) for n in sizes[:-1]]))
    g_weights = [torch.empty_like(w) for w in weights] if of_weights else []
    g_biases = [torch.empty(len(w)) for w in weights] if of_weights else []
    gx = torch.empty(networks, samples, sizes[0]) if of_input else None
    functions().sibe_network_gradients(
        *(at(g), all_at(weights)),
        *_shape(sizes, networks, samples),
        *(at(kept), at(room)),
        *((all_at(g_weights), all_at(g_biases)) if of_weights else (None, None)),
        *(None if gx is None else at(gx), torch.get_num_threads()),
    )
    return Gradients(None if gx is None else gx.sum(0), g_weights, g_biases)


def _sizes(weights: Sequence[Tensor], networks: int) -> list[int]:
    """Return the widths of a network's input and layers."""
    return [weights[0].shape[1], *(len(w) for w in weights[: len(weights) // networks])]


def _shape(sizes: list[int], networks: int, samples: int) -> tuple[object, ...]:
    table = (ctypes.c_int64 * len(sizes))(*sizes)
    return table, len(sizes) - 1, networks, ctypes.c_int64(samples)


@functools.cache
def _panel() -> int:
    return int(functions().sibe_panel())


def _padded(number: int) -> int:
    """Return ``number``, rounded up to whole panels."""
    return -(-number // _panel()) * _panel()
