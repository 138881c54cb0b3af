"""What the replay hands the agent: short sequences of consecutive transitions, in batches."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Chunk(NamedTuple):
    """``L`` consecutive transitions of one episode, ``B`` times; never across two episodes.

    Transition ``t`` leads from ``obs[t]`` to ``obs[t + 1]``. The channel axis of ``obs`` holds the
    stacked frames, oldest first.
    """

    obs: Tensor  # uint8 [L+1, B, H, W, C*stack]
    action: Tensor  # float32 [L, B, A]
    reward: Tensor  # float32 [L, B]
    discount: Tensor  # float32 [L, B], 0 only at a true termination; a time limit is 1

    def to(self, device: torch.device) -> Chunk:
        """Return the chunk on ``device``; a GPU fetches it from pinned memory as it goes on."""
        parts = (part.pin_memory() for part in self) if device.type == "cuda" else self
        return Chunk(*(part.to(device, non_blocking=True) for part in parts))
