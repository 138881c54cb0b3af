"""Do two spaces agree on who is near whom? The share of nearest neighbors they have in common."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def nearest(points: Floats, k: int) -> Indices:
    """Return the k nearest others of each point ``[N, D]`` by Euclidean distance: ``[N, k]``.

    Of equally near ones, those with the lower index.
    """
    points = points - points.mean(axis=0)  # against loss of digits in the next two lines
    power = (points**2).sum(axis=1)
    squared = power[:, None] + power - 2 * points @ points.T
    np.fill_diagonal(squared, np.inf)
    order: Indices = np.argsort(squared, axis=1, kind="stable")[:, :k]
    return order


def overlap(first: Indices, second: Indices) -> Floats:
    """Return the share of each point's neighbors ``[N, k]`` that both spaces name: ``[N]``."""
    shared = (first[:, :, None] == second[:, None, :]).any(axis=2)
    share: Floats = shared.mean(axis=1)
    return share


def chance_overlap(points: int, k: int) -> float:
    """Return the overlap expected of unrelated spaces: k of N - 1 others, named at random."""
    return k / (points - 1)
