"""When a phase of ``updates`` updates is looked at."""

from __future__ import annotations


def marks(updates: int) -> list[int]:
    """Return a few update counts from 0 to ``updates``, each twice the one before."""
    return sorted({0, updates // 8, updates // 4, updates // 2, updates})
