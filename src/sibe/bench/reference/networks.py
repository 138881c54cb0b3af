"""Encoder, actor, twin critic and SIBE's bottleneck in plain PyTorch: NCHW, one module per arrow.

Layer by layer these are the product's networks (same sizes, same order of parameters), so weights
can be copied from one to the other; the formulas are those of ``torch.distributions``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F

from sibe.config.schema import RunConfig
from sibe.methods.sibe import SIBEConfig
from sibe.nn.convolution import KERNEL
from sibe.nn.encoder import conv_size
from sibe.nn.gaussian import bounded_log_std, soft_log_std
from sibe.nn.late_encoder import HIDDEN, POOLED


def layers(sizes: Sequence[int]) -> nn.Sequential:
    """Return linear layers ``sizes[0] -> … -> sizes[-1]`` with ReLU between them."""
    network: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        network += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*network[:-1])


def noise(like: Tensor, generator: torch.Generator) -> Tensor:
    """Return N(0, 1) noise of the shape of ``like``."""
    return torch.randn(like.shape, generator=generator)


class PlainEncoder(nn.Module):
    """φ: float ``[N, C, H, W]`` in 0…255 -> ``[N, features]``."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        enc, channels = config.encoder, 3 * config.env.stack
        self.convs = nn.Sequential()
        for stride in enc.strides:
            self.convs.append(nn.Conv2d(channels, enc.filters, KERNEL, stride))
            self.convs.append(nn.ReLU())
            channels = enc.filters
        height, width = conv_size(config.env.size, enc.strides)
        self.project = nn.Linear(channels * height * width, enc.features)
        self.norm = nn.LayerNorm(enc.features)
        self.tanh, self.shift = enc.tanh, 0.5 if enc.center else 0.0

    def forward(self, pixels: Tensor) -> Tensor:
        """Encode a batch of images."""
        c: Tensor = self.norm(self.project(self.convs(pixels / 255 - self.shift).flatten(1)))
        return c.tanh() if self.tanh else c


class PlainLateEncoder(nn.Module):
    """φ with late fusion: stacked frames, float ``[N, C·stack, H, W]`` -> ``[N, features]``."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        enc, self.stack = config.encoder, config.env.stack
        self.convs, channels = nn.Sequential(), 3
        for stride in enc.strides:
            self.convs.append(nn.Conv2d(channels, enc.filters, KERNEL, stride))
            self.convs.append(nn.ReLU())
            channels = enc.filters
        height, width = conv_size(config.env.size, enc.strides)
        self.pooled = nn.Conv2d(channels, POOLED, KERNEL)
        self.place = nn.Linear(channels * height * width, enc.features)
        self.shape_norm, self.place_norm = nn.LayerNorm(POOLED), nn.LayerNorm(enc.features)
        sizes = (self.stack * (POOLED + enc.features), HIDDEN, enc.features)
        self.combine = layers(sizes).append(nn.LayerNorm(enc.features))
        self.tanh, self.shift = enc.tanh, 0.5 if enc.center else 0.0

    def forward(self, pixels: Tensor) -> Tensor:
        """Encode a batch of states, each with all its frames."""
        frames = (pixels / 255 - self.shift).unflatten(1, (self.stack, 3)).flatten(0, 1)
        maps = self.convs(frames)
        shape = self.shape_norm(F.relu(self.pooled(maps)).amax((2, 3)))
        place = self.place_norm(self.place(maps.flatten(1)))
        each = torch.cat([shape, place], dim=-1).unflatten(0, (-1, self.stack))
        changes = each.diff(dim=1).flip(1).flatten(1)
        c: Tensor = self.combine(torch.cat([each[:, -1], changes], dim=-1))
        return c.tanh() if self.tanh else c


class PlainActor(nn.Module):
    """π: c ``[N, D]`` -> action ``[N, A]`` and its log-density ``[N]``."""

    def __init__(self, features: int, action_dim: int, hidden: int) -> None:
        super().__init__()
        self.trunk = layers((features, hidden, hidden, 2 * action_dim))

    def forward(self, c: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw an action."""
        mean, raw = self.trunk(c).chunk(2, dim=-1)
        normal = Normal(mean, bounded_log_std(raw).exp())
        u = mean + normal.scale * noise(mean, generator)
        action = u.tanh()
        # The usual guard of this field against log 0.
        log_prob = normal.log_prob(u) - torch.log(1 - action.square() + 1e-6)
        return action, log_prob.sum(-1)


class PlainTwinQ(nn.Module):
    """Q₁ and Q₂: c ``[N, D]``, action ``[N, A]`` -> two values ``[N]``."""

    def __init__(self, features: int, action_dim: int, hidden: int) -> None:
        super().__init__()
        self.q1 = layers((features + action_dim, hidden, hidden, 1))
        self.q2 = layers((features + action_dim, hidden, hidden, 1))

    def forward(self, c: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return both values."""
        x = torch.cat([c, action], dim=-1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class PlainGaussian(nn.Module):
    """A network that outputs a normal distribution, LayerNorm on [μ, log σ]."""

    def __init__(self, sizes: Sequence[int], first_std: float) -> None:
        super().__init__()
        *inner, dim = sizes
        self.offset = math.log(first_std)
        self.network = layers((*inner, 2 * dim)).append(nn.LayerNorm(2 * dim))

    def forward(self, x: Tensor) -> Normal:
        """Return the distribution given ``x``."""
        mean, raw = self.network(x).chunk(2, dim=-1)
        return Normal(mean, soft_log_std(raw + self.offset).exp())


class PlainBottleneck(nn.Module):
    """SIBE with the defaults of ``SIBEConfig``: KL summed over z, pooled negatives."""

    def __init__(self, features: int, action_dim: int, config: SIBEConfig) -> None:
        super().__init__()
        latent, hidden = config.latent, config.hidden
        self.alpha = config.alpha
        self.stochastic_encoder = PlainGaussian((features, hidden, latent), config.first_std)  # g_o
        sizes = (latent + action_dim, hidden, hidden, latent)
        self.transition = PlainGaussian(sizes, config.first_std)  # q_ψ
        self.projection = nn.Linear(latent + action_dim, latent)  # d_υ
        self.prediction = layers((latent, hidden, latent))  # f_o
        self.bilinear = nn.Parameter(torch.zeros(latent, latent))  # ω
        self.target_stochastic_encoder = deepcopy(self.stochastic_encoder)  # g_m
        self.target_prediction = deepcopy(self.prediction)  # f_m

    @torch.no_grad()
    def start(self, generator: torch.Generator) -> None:
        """Draw ω, and make the targets equal to their online networks."""
        self.bilinear.copy_(torch.rand(self.bilinear.shape, generator=generator))
        self.bilinear.div_(len(self.bilinear))
        for target, online in (
            (self.target_stochastic_encoder, self.stochastic_encoder),
            (self.target_prediction, self.prediction),
        ):
            target.load_state_dict(online.state_dict())
            target.requires_grad_(False)

    def forward(
        self, c: Tensor, action: Tensor, c_next: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Take c and c_next ``[N, D]``, action ``[N, A]``; return the loss and InfoNCE ``[N]``."""
        online = self.stochastic_encoder(c)
        z = online.mean + online.stddev * noise(online.mean, generator)
        with torch.no_grad():
            target = self.target_stochastic_encoder(c_next)
            z_next = target.mean + target.stddev * noise(target.mean, generator)
            key = self.target_prediction(z_next)
        joint = torch.cat([z, action], dim=-1)
        divergence = kl_divergence(target, self.transition(joint)).sum(-1)
        query = self.prediction(self.projection(joint))
        scores = query @ self.bilinear @ key.T
        infonce = F.cross_entropy(scores, torch.arange(len(scores)), reduction="none")
        return self.alpha * divergence.mean() + infonce.mean(), infonce
