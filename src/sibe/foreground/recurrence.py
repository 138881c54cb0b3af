"""Frames that have the same background: what differs between them is the robot.

A background that recurs, be it a video that repeats or a room that stands still, is found by
comparing a few pixels of all stored frames. A robot that covers a few percent of the image changes
a few of them; another background, or the same video one frame later, changes far more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Frames = npt.NDArray[np.uint8]
Index = npt.NDArray[np.int64]

ALIKE = 0.85
"""Share of the compared pixels that must agree for two backgrounds to be the same."""
TOLERANCE = 1
"""Levels by which pixels that agree may differ."""
_TRIES = 4  # pairs of each frame, of which the one with the most different robots is kept


class StoredFrames(NamedTuple):
    """What the replay holds of one camera, N frames."""

    slots: Index
    """where they are, [N]"""
    episode: Index
    """of which episode they are, [N]"""
    samples: Frames
    """a few pixels of each, of one channel, [N, P]"""
    read: Callable[[Index], Frames]
    """slots [M] -> frames uint8 [M, H, W, 3]"""


def recurring_pairs(
    stored: StoredFrames, wanted: int, rng: np.random.Generator
) -> tuple[Frames, Frames]:
    """Draw frames, and for each one of another episode with the same background.

    Args:
        stored: what to draw from.
        wanted: how many frames are drawn; those whose background does not recur are left out.
        rng: draws them.

    Returns:
        The two frames of each pair, uint8 [M, H, W, 3] both, with M ≤ wanted.
    """
    drawn = rng.integers(len(stored.slots), size=wanted)
    first: list[Frames] = []
    second: list[Frames] = []
    for index in drawn.tolist():
        mates = _same_background(stored, index)
        if not len(mates):
            continue
        tried = rng.choice(mates, size=min(_TRIES, len(mates)), replace=False)
        frames = stored.read(stored.slots[np.append(index, tried)])
        change = np.abs(frames[1:].astype(np.int16) - frames[0]).max(-1) > TOLERANCE
        first.append(frames[0])
        second.append(frames[1 + change.sum((1, 2)).argmax()])
    if not first:
        nothing = stored.read(stored.slots[:0])
        return nothing, nothing
    return np.stack(first), np.stack(second)


def _same_background(stored: StoredFrames, index: int) -> Index:
    """Return which stored frames of other episodes have the background of frame ``index``."""
    here = stored.samples[index]
    gap = np.maximum(stored.samples, here) - np.minimum(stored.samples, here)
    alike = (gap <= TOLERANCE).mean(1) >= ALIKE
    return np.flatnonzero(alike & (stored.episode != stored.episode[index]))
