"""Which stored states look alike: groups of chunks that differ in little but the robot.

With a moving video behind the robot, a contrastive loss is solved by recognizing the background,
because the other states of a minibatch show another one. In a group of states whose images are
alike as a whole, and which come from different episodes, the background is nearly the same and the
robot is what is left to tell them apart. Images are compared as thumbnails, in which a robot of a
few percent of the pixels hardly counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sibe.replay.ring import Drawn, Index

_CELLS = 6  # a thumbnail has so many cells each way
CANDIDATES = 4096
"""States among which a group is looked for."""


class Thumbnails:
    """The mean color of each cell of a coarse grid over every stored frame."""

    def __init__(self, capacity: int, frame_shape: tuple[int, int, int]) -> None:
        height, width, channels = frame_shape
        self._cells = min(_CELLS, height), min(_CELLS, width)
        self._values = np.zeros((capacity, *self._cells, channels), np.float32)

    def put(self, slot: int, frame: NDArray[np.uint8]) -> None:
        """Remember ``frame`` uint8 [H, W, C]; what does not fill a cell is left out."""
        rows, columns = self._cells
        height, width = frame.shape[0] // rows, frame.shape[1] // columns
        whole = frame[: rows * height, : columns * width]
        cells = whole.reshape(rows, height, columns, width, -1)
        self._values[slot] = cells.mean((1, 3), dtype=np.float32)

    def distances(self, slots: Index, others: Index) -> NDArray[np.float32]:
        """Return the squared distances of ``others`` [N] from each of ``slots`` [A]: [A, N].

        Up to a constant of each row, which does not change their order.
        """
        a, b = (self._values[chosen].reshape(len(chosen), -1) for chosen in (slots, others))
        found: NDArray[np.float32] = (b * b).sum(1) - 2 * a @ b.T
        return found


def grouped(
    candidates: Drawn, distances: NDArray[np.float32], size: int, rng: np.random.Generator
) -> Drawn:
    """Return a group of ``size`` for each row of ``distances``, one after the other.

    A group is a candidate and those most like it, one from each of the episodes that have the
    best; where there are too few episodes, candidates at random fill it up.

    Args:
        candidates: N of them; the first A begin a group each.
        distances: of these A from all N, [A, N].
        size: of a group.
        rng: for what fills up groups.
    """
    order = np.argsort(candidates.first, kind="stable")
    first = candidates.first[order]
    begins = np.flatnonzero(np.diff(first, prepend=-1))  # of each episode, in ``order``
    ends = np.append(begins[1:], len(order))
    sorted_distances = distances[:, order]
    best = np.minimum.reduceat(sorted_distances, begins, axis=1)  # [A, episodes]
    chosen: list[int] = []
    for row, nearest in enumerate(best):
        nearest[first[begins] == candidates.first[row]] = np.inf  # its own episode
        episodes = np.argsort(nearest, kind="stable")[: min(size, len(begins)) - 1]
        chosen.append(row)
        for begin, end in zip(begins[episodes], ends[episodes], strict=True):
            chosen.append(int(order[begin + sorted_distances[row, begin:end].argmin()]))
        chosen.extend(rng.integers(len(order), size=size - 1 - len(episodes)).tolist())
    return Drawn(*(part[chosen] for part in candidates))
