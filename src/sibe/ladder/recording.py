"""An episode as what brings it about again: its seed and its actions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class Recording(NamedTuple):
    """One episode of T agent steps, and what was seen of it."""

    seed: int
    """what the env was reset to"""
    shown: int
    """how many background images the episodes before it showed"""
    actions: Floats
    """``[T, A]``"""
    rewards: tuple[float, ...]
    """``[T]``"""
    states: Floats
    """``[T + 1, K]``, the task's own observation"""
    terminated: bool
    """whether the last step was a true termination"""
