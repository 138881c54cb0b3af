"""The paper's table: its rules for bold and asterisk, its printed numbers, and public references.

The asterisk marks the highest mean of a row. For bold the caption asks that a method's lower bound
(mean − s.e.) be at least the upper bound of every other method; at most one method per row could
have that, yet five rows print two to four. What reproduces all 60 printed cells is this rule: bold
is every method whose distance to the row's best mean is at most the standard error of that
difference, √(se² + se_best²). "The intervals overlap" is off in one cell (cheetah_run, video,
Proto-RL). The numbers lie in data/ as they were printed.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

import numpy as np


class Mark(NamedTuple):
    """How a cell of the table is set."""

    bold: bool
    asterisk: bool


class PaperCell(NamedTuple):
    """A cell of the paper's table, as printed."""

    background: str
    task: str
    method: str
    env_step: int
    seeds: int
    mean: float
    se: float
    mark: Mark


class Reference(NamedTuple):
    """A published score of somebody else's code."""

    task: str
    background: str
    method: str
    env_step: int
    seeds: str
    """"" where the source does not say"""
    mean: float
    sd: float
    """standard deviation over seeds (not a standard error); nan where there is none"""
    source: str


def marks(means: Sequence[float], ses: Sequence[float]) -> list[Mark]:
    """Return the marks of one row of the table.

    Args:
        means: one per method; nan for a method without a score.
        ses: standard errors; nan where one seed gives none. Without one nothing can be said about
            a difference, so that a method, or a whole row if it is the best one's, has no bold.
    """
    mean, se = np.asarray(means, dtype=np.float64), np.asarray(ses, dtype=np.float64)
    if not np.isfinite(mean).any():
        return [Mark(False, False)] * len(mean)
    best = int(np.nanargmax(mean))
    close = mean[best] - mean <= np.sqrt(se**2 + se[best] ** 2)  # false with nan
    close[best] = np.isfinite(se[best])
    return [Mark(bool(c), bool(m == mean[best])) for c, m in zip(close, mean, strict=True)]


def paper_table() -> list[PaperCell]:
    """Return the 60 cells of the paper's table, in its order."""
    return [
        PaperCell(
            row["background"],
            row["task"],
            row["method"],
            int(row["env_step"]),
            int(row["seeds"]),
            float(row["mean"]),
            float(row["se"]),
            Mark(row["bold"] == "1", row["asterisk"] == "1"),
        )
        for row in _rows("paper_table.csv")
    ]


def reference_scores() -> list[Reference]:
    """Return the public scores, each with its source."""
    return [
        Reference(
            row["task"],
            row["background"],
            row["method"],
            int(row["env_step"]),
            row["seeds"],
            float(row["mean"]),
            float(row["sd"] or "nan"),
            row["source"],
        )
        for row in _rows("reference_scores.csv")
    ]


def _rows(name: str) -> list[dict[str, str]]:
    text = (files("sibe.analysis.report") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
