"""Which robots are shown before which backgrounds, and which two pairs are marked.

Each chosen pose appears before ``COPIES`` backgrounds and each chosen background behind
``COPIES`` poses, so that pairs which share exactly one of the two exist and are many. The marked
ones are chosen by the simulator's state and the pictures alone, never by where they came to lie.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

COPIES = 3

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class Layout(NamedTuple):
    """What is shown: observation i is moment ``poses[i]`` before that of ``backgrounds[i]``."""

    poses: Indices
    backgrounds: Indices
    same_pose: Indices
    """``[M, 2]`` all pairs that share the pose and not the background"""
    same_background: Indices
    """``[M, 2]`` all pairs that share the background and not the pose"""


def spread_out(features: Floats, count: int) -> Indices:
    """Return ``count`` rows of ``features [N, P]`` that cover its range.

    Greedy: the first is the one nearest the middle, each further one the farthest from all so far
    (a 2-approximation of the best cover). Rows repeat only when N is below ``count``.
    """
    middle = ((features - features.mean(axis=0)) ** 2).sum(axis=1)
    chosen = [int(middle.argmin())]
    nearest = np.full(len(features), np.inf)
    while len(chosen) < count:
        nearest = np.minimum(nearest, ((features - features[chosen[-1]]) ** 2).sum(axis=1))
        nearest[chosen[-1]] = -1.0  # below any distance: not again while there are others
        chosen.append(int(nearest.argmax()))
    return np.array(chosen)


def crossed_layout(poses: Indices, backgrounds: Indices, rng: np.random.Generator) -> Layout:
    """Show each of K poses before ``COPIES`` of K backgrounds, and each background as often.

    Args:
        poses, backgrounds: moments ``[K]``, no background twice.
        rng: shuffles who meets whom.
    """
    count = len(poses)
    if count < COPIES or len(backgrounds) != count:
        raise ValueError(f"{count} poses and {len(backgrounds)} backgrounds")
    mixed = rng.permutation(backgrounds)
    # Pose k meets the backgrounds k, k + 1 and k + 2 of a shuffled circle: no pair meets twice.
    shown = [(k, (k + step) % count) for k in range(count) for step in range(COPIES)]
    pose, behind = np.array(shown).T
    return Layout(
        poses[pose], mixed[behind], same_pose=_sharing(pose), same_background=_sharing(behind)
    )


def plain_layout(poses: Indices) -> Layout:
    """Show each pose once, as it was: there is no background to exchange."""
    none = np.empty((0, 2), np.int64)
    return Layout(poses, poses, none, none)


def most_different(pairs: Indices, features: Floats) -> tuple[int, int]:
    """Return the pair of ``pairs [M, 2]`` whose ``features [N, P]`` are farthest apart."""
    apart = ((features[pairs[:, 0]] - features[pairs[:, 1]]) ** 2).sum(axis=1)
    first, second = pairs[int(apart.argmax())]
    return int(first), int(second)


def _sharing(labels: Indices) -> Indices:
    groups = (np.flatnonzero(labels == label) for label in np.unique(labels))
    return np.array([pair for group in groups for pair in combinations(group, 2)])
