"""Encoders that stand in for the one SAC would learn: fixed, so only the rest learns."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from sibe.agents.sac.agent import SAC
from sibe.nn.running import RunningMoments

_LIMIT = 10.0  # standard deviations; random play alone knows little of how far a state can go


class StateEncoder(nn.Module):
    """The state itself as c: standardized ``[..., K]`` -> random affine map -> LayerNorm.

    The offsets of the map keep the length of the state readable, which LayerNorm alone would
    remove. ``moments`` are those of all observations so far; who collects updates them.

    Args:
        size: K.
        features: D, the size of c; a state of more than D numbers does not fit into it whole.
        generator: draws the map.
    """

    def __init__(self, size: int, features: int, generator: torch.Generator) -> None:
        super().__init__()
        self.moments = RunningMoments((size,))
        self.affine = nn.Linear(size, features)
        self.norm = nn.LayerNorm(features, elementwise_affine=False)
        with torch.no_grad():
            self.affine.weight.normal_(std=size**-0.5, generator=generator)
            self.affine.bias.normal_(generator=generator)

    def forward(self, states: Tensor, still: int = 0) -> Tensor:
        """Return c ``[..., D]`` of states ``[..., K]``, and of the first ``still`` again."""
        if still:  # a state has no frames that could be left out
            states = torch.cat((states, states[:still]))
        c: Tensor = self.norm(self.affine(self.moments.standardize(states, _LIMIT)))
        return c

    def single(self, states: Tensor) -> Tensor:
        """Return c ``[N, D]`` of states ``[N, K]``."""
        c: Tensor = self(states)
        return c


class Frozen(nn.Module):
    """An encoder that no longer learns; its output takes a gradient and drops it."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder: Any = encoder.requires_grad_(False).eval()

    def forward(self, images: Tensor, still: int = 0) -> Tensor:
        """Return the encoder's output, as a leaf."""
        c: Tensor = self.encoder(images, still).detach()
        return c.requires_grad_(torch.is_grad_enabled())

    def single(self, states: Tensor) -> Tensor:
        """Return the encoder's output for states that do not overlap."""
        c: Tensor = self.encoder.single(states)
        return c


def replace_encoder(agent: SAC, encoder: nn.Module) -> None:
    """Let ``encoder``, as it is, stand in for both encoders: what never moves is its own target."""
    stand_in = Frozen(encoder.to(agent.device))
    agent.encoder = agent.target_encoder = cast(Any, stand_in)
