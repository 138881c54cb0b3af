"""Square parts of frames: most of a frame is background, and a step on parts takes less time."""

from __future__ import annotations

import numpy as np

from sibe.foreground.recurrence import Frames, Index

_AROUND = 0.8  # share of the parts that hold a pixel that differs


def crops_at(frames: Frames, rows: Index, columns: Index, side: int) -> Frames:
    """Return of each frame ``[N, H, W, 3]`` the square that begins at its row and column."""
    parts = zip(frames, rows.tolist(), columns.tolist(), strict=True)
    return np.stack([frame[y : y + side, x : x + side] for frame, y, x in parts])


def anywhere(frames: Frames, side: int, rng: np.random.Generator) -> tuple[Index, Index]:
    """Draw where parts of frames ``[N, H, W, 3]`` begin: rows [N] and columns [N]."""
    rows, columns = (
        rng.integers(length - side + 1, size=len(frames)) for length in frames.shape[1:3]
    )
    return rows, columns


def around_change(
    one: Frames, other: Frames, side: int, rng: np.random.Generator
) -> tuple[Index, Index]:
    """Draw where parts of pairs of frames begin, most of them so that they show a difference."""
    rows, columns = anywhere(one, side, rng)
    height, width = one.shape[1:3]
    for pair in np.flatnonzero(rng.random(len(one)) < _AROUND):
        places = np.flatnonzero((one[pair] != other[pair]).any(-1))
        if len(places):
            y, x = divmod(int(rng.choice(places)), width)
            before_y, before_x = rng.integers(side, size=2)
            rows[pair] = min(max(y - before_y, 0), height - side)
            columns[pair] = min(max(x - before_x, 0), width - side)
    return rows, columns
