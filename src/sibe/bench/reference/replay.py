"""The reference replay: stacked observations and their successors, both whole, as NCHW bytes.

With three frames per state every frame is stored six times. A batch is gathered by fancy indexing,
turned into floats and only then padded and cropped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

Bytes = NDArray[np.uint8]


class Batch(NamedTuple):
    """``L`` consecutive transitions, ``B`` times."""

    obs: Tensor  # float32 [L, B, C·stack, H, W], 0…255
    action: Tensor  # float32 [L, B, A]
    reward: Tensor  # float32 [L, B]
    discount: Tensor  # float32 [L, B]
    next_obs: Tensor  # float32 [L, B, C·stack, H, W]


class StackedReplay:
    """A ring of ``capacity`` transitions with states of ``shape`` (C·stack, H, W)."""

    def __init__(self, capacity: int, shape: tuple[int, int, int], action_dim: int) -> None:
        self.obs = np.empty((capacity, *shape), np.uint8)
        self.next_obs = np.empty((capacity, *shape), np.uint8)
        self.action = np.empty((capacity, action_dim), np.float32)
        self.reward = np.empty(capacity, np.float32)
        self.discount = np.empty(capacity, np.float32)
        self.last = np.zeros(capacity, np.bool_)
        self.capacity, self.index, self.full = capacity, 0, False

    def __len__(self) -> int:
        return self.capacity if self.full else self.index

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.obs, self.next_obs, self.action, self.reward, self.discount, self.last)
        return sum(array.nbytes for array in arrays)

    def add(
        self,
        obs: Bytes,
        action: NDArray[np.float32],
        reward: float,
        discount: float,
        next_obs: Bytes,
        *,
        last: bool,
    ) -> None:
        """Store a transition; ``last`` of its episode."""
        self.obs[self.index] = obs
        self.action[self.index] = action
        self.reward[self.index] = reward
        self.discount[self.index] = discount
        self.next_obs[self.index] = next_obs
        self.last[self.index] = last
        self.index = (self.index + 1) % self.capacity
        self.full = self.full or self.index == 0

    def sample(self, batch: int, length: int, pad: int, rng: np.random.Generator) -> Batch:
        """Draw ``batch`` chunks of ``length`` transitions and shift every image by up to ±pad."""
        at = self._starts(batch, length, rng) + np.arange(length)[:, None]  # [L, B]
        return Batch(
            _augmented(self.obs[at], pad, rng),
            torch.as_tensor(self.action[at]),
            torch.as_tensor(self.reward[at]),
            torch.as_tensor(self.discount[at]),
            _augmented(self.next_obs[at], pad, rng),
        )

    def _starts(self, batch: int, length: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw starts whose chunk lies in one episode, and not across the head of the ring."""
        starts: list[int] = []
        while len(starts) < batch:
            start = int(rng.integers(len(self) - length + 1))
            inside = slice(start, start + length - 1)
            if not self.last[inside].any() and not start < self.index < start + length:
                starts.append(start)
        return np.array(starts)


def _augmented(images: Bytes, pad: int, rng: np.random.Generator) -> Tensor:
    """Return ``images [L, B, C, H, W]`` as shifted floats."""
    flat = torch.as_tensor(images.reshape(-1, *images.shape[2:])).float()
    return pad_and_crop(flat, pad, rng).reshape(images.shape)


def pad_and_crop(images: Tensor, pad: int, rng: np.random.Generator) -> Tensor:
    """Shift each of ``images [N, C, H, W]``: replicate the edges ``pad`` pixels out, then crop."""
    height, width = images.shape[2:]
    padded = F.pad(images, (pad, pad, pad, pad), mode="replicate")
    shifts = rng.integers(0, 2 * pad + 1, size=(len(images), 2)).tolist()
    crops = [
        image[:, dy : dy + height, dx : dx + width]
        for image, (dy, dx) in zip(padded, shifts, strict=True)
    ]
    return torch.stack(crops)
