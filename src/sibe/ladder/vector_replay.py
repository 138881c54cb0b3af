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
        if last and discount == 0:
            self._ring.terminated.add(self._ring.newest)

    def minibatch(self, wanted: Sampling, rng: np.random.Generator) -> Chunk:
        """Draw chunks whose ``obs`` is float32 ``[L+1, B, K]``, as ``Replay.sample`` does."""
        drawn = self._ring.draw(wanted.batch, wanted.length, rng, wanted.least)
        slots = self._ring.slots(drawn.newest(wanted.length))
        kept = [values[slots[:-1]] for values in (self._action, self._reward, self._discount)]
        for values in kept:
            values[drawn.after_end(wanted.length)] = 0
        action, reward, discount = map(torch.from_numpy, kept)
        return Chunk(torch.from_numpy(self._vector[slots]), action, reward, discount)
