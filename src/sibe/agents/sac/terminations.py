"""What SAC and its method learn from chunks in which an episode terminates.

A chunk of L transitions (and n - 1 more for the n-step target) may go beyond a termination; what
lies there has not happened and is learned from by nobody. Two things follow.

With ``transitions="first"`` SAC learns from the first transition of each chunk. No chunk starts at
the last L - 1 transitions of an episode, so from a chunk that ends with a termination it learns
from all of them: each transition of an episode then counts as often as any other.

An episode that terminated before it had L transitions still makes one chunk. SAC learns from the
transitions that it has; the method, which needs L of them in a row, does not see it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sibe.methods.base import Latents, SensorLatents


class Terminations(NamedTuple):
    """Which parts of a minibatch count."""

    rows: Tensor
    """bool ``[L, B]``: the transitions that SAC learns from"""
    chunks: Tensor
    """``[B']``: the chunks that the method sees"""

    def to(self, device: torch.device) -> Terminations:
        """Return the same on ``device``."""
        return Terminations(*(part.to(device) for part in self))

    def for_method(
        self, latents: Latents, alone: SensorLatents | None
    ) -> tuple[Latents, SensorLatents | None]:
        """Return the chunks that the method sees."""
        if alone is not None:
            alone = SensorLatents(*(part[:, :, self.chunks] for part in alone))
        return Latents(*(part[:, self.chunks] for part in latents)), alone

    def bonus(self, bonus: Tensor) -> Tensor:
        """Return ``bonus [L, B']`` of the method for all chunks ``[L, B]``, 0 for the others."""
        everywhere = bonus.new_zeros(self.rows.shape)
        everywhere[:, self.chunks] = bonus
        return everywhere


def find_terminations(discount: Tensor, length: int, transitions: str) -> Terminations | None:
    """Return what counts of a minibatch; None if that is what counts without any termination.

    Args:
        discount: ``[L + n - 1, B]``, 0 from a termination on.
        length: L.
        transitions: which of a chunk SAC learns from, "first" or "all".
    """
    going_on = discount[:length] > 0
    if going_on.all():
        return None
    began = torch.cat((torch.ones_like(going_on[:1]), going_on[:-1])).cumprod(0).bool()
    rows = began
    if transitions == "first":
        rows = began & ~going_on.all(0)
        rows[0] = True
    whole = began.all(0)
    # If no chunk is, the method gets what there is rather than nothing.
    chunks = (whole if whole.any() else torch.ones_like(whole)).nonzero().squeeze(-1)
    return Terminations(rows, chunks)
