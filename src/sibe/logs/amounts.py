"""Amounts in words: 1 run, 2 runs; 96 kB, 15 MB, 3.2 GB."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return the number with its noun, whose plural ends in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(number_of_bytes: float) -> str:
    """Return bytes in the unit that suits them; GB with one decimal."""
    for unit, scale in (("kB", 1e3), ("MB", 1e6)):
        if number_of_bytes < 999.5 * scale:
            return f"{max(1.0, number_of_bytes / scale):.0f} {unit}"
    return f"{number_of_bytes / 1e9:.1f} GB"
