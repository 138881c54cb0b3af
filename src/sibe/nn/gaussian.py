"""Diagonal Gaussians: the bottleneck's g and q_ψ, and the actor's squashed Gaussian.

Scales are kept as log-std throughout, because both the KL divergence and the log-density need
log σ and neither then takes the logarithm of something that may have underflowed. Noise is
always drawn with the caller's generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibe.nn.mlp import mlp

LOW, HIGH = -10.0, 2.0


def standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return N(0, 1) noise of the shape, type and device of ``like``.

    A generator on another device is honored there and the noise moved, so that one seed gives
    one result on every device.
    """
    device = like.device if generator is None else generator.device
    noise = torch.randn(like.shape, generator=generator, device=device, dtype=like.dtype)
    return noise.to(like.device)


class Gaussian(NamedTuple):
    """N(μ, diag(σ²)) over the last dimension, batched over the others."""

    mean: Tensor
    """μ ``[..., D]``"""
    log_std: Tensor
    """log σ ``[..., D]``"""

    @property
    def std(self) -> Tensor:
        """σ ``[..., D]``."""
        return self.log_std.exp()

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw ``[..., D]`` as μ + σ·ε, through which gradients flow to μ and σ."""
        return self.mean + self.std * standard_normal(self.mean, generator)


def kl(p: Gaussian, q: Gaussian) -> Tensor:
    """Return D_KL(p ‖ q) of every dimension, ``[..., D]`` (Eq. kl).

    log(σ_q/σ_p) + (σ_p² + (μ_p - μ_q)²) / (2σ_q²) - 1/2, with the terms in σ gathered in an
    ``expm1`` so that nearly equal Gaussians do not lose their small divergence to rounding.
    """
    log_ratio = p.log_std - q.log_std
    distance = (p.mean - q.mean) * (-q.log_std).exp()
    return 0.5 * (torch.expm1(2 * log_ratio) + distance.square()) - log_ratio


def soft_log_std(raw: Tensor, low: float = LOW, high: float = HIGH) -> Tensor:
    """Bound a log-std to (low, high) so smoothly that it is the identity around 0.

    low < 0 < high. Slope 1 and curvature 0 where the two tanh branches meet.
    """
    limit = torch.where(raw > 0, high, -low).to(raw.dtype)
    return limit * (raw / limit).tanh()


class GaussianHead(nn.Module):
    """A network that outputs a Gaussian: ``[..., sizes[0]] -> Gaussian [..., sizes[-1]]``.

    σ = exp(log-std) with log-std softly bounded to (-10, 2). The bound is the identity around 0,
    so a fresh head, whose outputs are near 0, starts with σ near ``first_std``. ``layer_norm``
    normalizes the concatenated [μ, log σ] before the split, which keeps the KL divergence from
    exploding.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        layer_norm: bool = True,
        first_std: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        *hidden, dim = sizes
        self._offset = math.log(first_std)
        self.network = mlp((*hidden, 2 * dim), layer_norm=layer_norm, generator=generator)

    def forward(self, x: Tensor) -> Gaussian:
        """Return the Gaussian given ``x [..., sizes[0]]``."""
        mean, raw = self.network(x).chunk(2, dim=-1)
        return Gaussian(mean, soft_log_std(raw + self._offset))


def bounded_log_std(raw: Tensor, low: float = LOW, high: float = HIGH) -> Tensor:
    """Map a raw output onto (low, high) by tanh, centered between them: the actor's log-std."""
    return low + 0.5 * (high - low) * (raw.tanh() + 1)


def squashed_sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the action tanh(u), u = μ + σ·ε ``[..., A]``, and its log-density ``[...]``.

    The density of u is divided by |d tanh(u)/du| = 1 - tanh²(u), whose logarithm is written
    2(log 2 - u - softplus(-2u)): exact for every u, also where 1 - tanh²(u) rounds to 0.
    """
    u = mean + log_std.exp() * noise
    log_normal = -0.5 * (noise.square() + math.log(2 * math.pi)) - log_std
    log_slope = 2 * (math.log(2) - u - F.softplus(-2 * u))
    return u.tanh(), (log_normal - log_slope).sum(-1)
