"""A replay of vectors with the interface of the replay of frames."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from sibe.ladder.state_env import Vector
from sibe.replay.chunk import Chunk
from sibe.replay.ring import Ring
from sibe.replay.sampling import Sampling


class VectorReplay:
    """A ring of ``capacity`` vectors [K] and the transitions between them.

    Args:
        capacity: vectors kept; an episode of T transitions takes T + 1.
        size: K.
        action_dim: A.
    """

    def __init__(self, capacity: int, size: int, action_dim: int) -> None:
        self._ring = Ring(capacity, stack=1)
        self._vector = np.zeros((capacity, size), np.float32)
        self._action = np.zeros((capacity, action_dim), np.float32)
        self._reward = np.zeros(capacity, np.float32)
        self._discount = np.zeros(capacity, np.float32)

    def start(self, vector: Vector) -> None:
        """Begin an episode with its first ``vector`` [K]."""
        self._vector[self._ring.push(first=True)] = vector

    def add(
        self, action: ArrayLike, reward: float, discount: float, vector: Vector, *, last: bool
    ) -> None:
        """Store one agent step, as ``Replay.add`` does."""
        before = (self._ring.written - 1) % self._ring.capacity
        self._vector[self._ring.push(first=False)] = vector
        self._action[before] = action
        self._reward[before] = reward
        self._discount[before] = discount

    def minibatch(self, wanted: Sampling, rng: np.random.Generator) -> Chunk:
        """Draw chunks whose ``obs`` is float32 ``[L+1, B, K]``; none crosses an episode's end."""
        start, _ = self._ring.draw(wanted.batch, wanted.length, rng)
        slots = self._ring.slots(start + np.arange(wanted.length + 1)[:, None])
        kept = (self._action, self._reward, self._discount)
        action, reward, discount = (torch.from_numpy(values[slots[:-1]]) for values in kept)
        return Chunk(torch.from_numpy(self._vector[slots]), action, reward, discount)
