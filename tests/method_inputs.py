"""Methods by name, and random inputs for them, the same for the same seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sibe.agents.sac import entry
from sibe.catalogue.registry import find_method
from sibe.methods.base import Latents, Method


def build_method(
    name: str,
    config: Any,
    features: int,
    action_dim: int,
    *,
    generator: torch.Generator | None = None,
) -> Method:
    return entry.build_method(name, find_method(name), config, features, action_dim, generator)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_latents(features: int, action_dim: int, length: int, batch: int, seed: int) -> Latents:
    generator = seeded(seed)
    c, c_next = torch.randn(2, length, batch, features, generator=generator)
    action = torch.rand(length, batch, action_dim, generator=generator) * 2 - 1
    reward = torch.rand(length, batch, generator=generator)
    return Latents(c.requires_grad_(), c_next, action, reward)


@torch.no_grad()
def move_weights(model: nn.Module) -> None:
    """Move every weight a little, so that targets are no copies of their networks any more."""
    generator = seeded(4)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
