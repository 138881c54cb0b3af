"""Vectors in RAM, one per slot of the ring: the readings of a sensor that is not a camera."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sibe.replay.ring import Index

Floats = NDArray[np.float32]


class VectorStore:
    """``capacity`` vectors of ``shape`` (S,)."""

    dtype = np.dtype(np.float32)

    def __init__(self, capacity: int, shape: tuple[int]) -> None:
        self.shape = shape
        self._vectors = np.zeros((capacity, *shape), np.float32)

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors."""
        return self._vectors.nbytes

    def put(self, slot: int, vector: Floats) -> None:
        """Store ``vector`` float32 [S]."""
        self._vectors[slot] = vector

    def get(self, slots: Index) -> Floats:
        """Return copies of the vectors in ``slots`` [N]: float32 [N, S]."""
        return self._vectors[slots]

    def take(self, slots: Index) -> Tensor:
        """Return the vectors in ``slots`` [T, B]: float32 [T, B, S] in memory of its own."""
        return torch.from_numpy(self._vectors[slots])
