"""Plain SAC: no auxiliary loss, no bonus. The row every other method is compared with."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sibe.methods.base import Latents, Method, MethodOutput


@dataclass(frozen=True)
class NoneConfig:
    """Plain SAC has nothing to set."""


class NoMethod(Method):
    """Adds nothing: constants outside the graph, no parameters, no metrics."""

    sees_next = False

    def __init__(
        self,
        features: int,
        action_dim: int,
        config: NoneConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()

    def forward(self, x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        """Return a zero loss and a zero bonus ``[L, B]``."""
        zeros = torch.zeros_like(x.reward)
        return MethodOutput(loss=zeros.new_zeros(()), bonus=zeros, metrics={})
