"""Mean and variance of everything seen so far, one minibatch at a time.

Batches are merged by the parallel update of Chan, Golub and LeVeque (1979), which does not lose
digits when the mean is large against the spread. All state is buffers in double precision, so a
checkpoint continues bit for bit and millions of small updates still count.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class RunningMoments(nn.Module):
    """Running mean and variance of values of shape ``shape``, one per element.

    Buffers: ``count``, ``mean`` and ``var`` (of the population: divided by n, not by n - 1).
    Before the first update mean is 0 and var 1. With ``memory`` the count stops there, so that
    older values fade exponentially and the moments follow what drifts.
    """

    count: Tensor
    mean: Tensor
    var: Tensor

    def __init__(self, shape: tuple[int, ...] = (), *, memory: float = math.inf) -> None:
        super().__init__()
        self.memory = memory
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Take in ``x [..., *shape]``: every leading index is one more value."""
        values = x.detach().to(self.mean.dtype).reshape(-1, *self.mean.shape)
        total = (self.count + len(values)).clamp(max=max(self.memory, len(values)))
        share = len(values) / total
        delta = values.mean(0) - self.mean
        spread = values.var(0, correction=0) - self.var
        # M₂ = M₂ᵃ + M₂ᵇ + δ²·nₐn_b/n, divided by n; with nₐ = 0 the initial var drops out.
        self.var.add_(share * spread + share * (1 - share) * delta.square())
        self.mean.add_(share * delta)
        self.count.copy_(total)

    @property
    def std(self) -> Tensor:
        """Standard deviation, of the shape of ``mean``."""
        return self.var.sqrt()

    def standardize(self, x: Tensor, limit: float = 5.0) -> Tensor:
        """Return (x - mean) / std, clipped to ±limit, in the type of x; ``[..., *shape]``."""
        std = self.std.clamp_min(1e-8)
        return ((x - self.mean) / std).clamp(-limit, limit).to(x.dtype)

    def scale(self, x: Tensor) -> Tensor:
        """Take in errors ``x [...]`` (shape ``()``), then return x / std in the type of x.

        Where the mean is larger than the std it divides instead: errors that are all alike would
        otherwise be divided by next to nothing. Errors that do not grow average 1 at most.
        """
        self.update(x)
        spread = self.std.maximum(self.mean.abs()).clamp_min(1e-8)
        return (x / spread).to(x.dtype)
