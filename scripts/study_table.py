"""Print the scores of committed runs by seed, with 95 % intervals over seeds.

    .venv/bin/python scripts/study_table.py results/study

Score: mean of the last five evaluations of a finished run. The numbers are those of
`sibe report FOLDER --last 5`. Means and differences have percentile bootstrap intervals, which are
too narrow for so few seeds (of three, from the lowest to the highest); the last column is Welch's
interval for the difference.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
from scipy import stats

from sibe.analysis.comparison import load_study
from sibe.analysis.scores import Cell, cells_at
from sibe.analysis.statistics import FEWEST, bootstrap_interval, difference_of_means

STEP, LAST, SEED = 100_000, 5, 0


def interval(low: float, high: float) -> str:
    """Return an interval as text, nothing for too few seeds."""
    return "" if math.isnan(low) else f" [{low:.0f}, {high:.0f}]"


def row(cell: Cell, first: Cell) -> str:
    """Return the row of one method in one setting."""
    low, high = bootstrap_interval(cell.scores, np.random.default_rng(SEED))
    found = difference_of_means(first.scores, cell.scores, np.random.default_rng(SEED))
    seeds = ", ".join(
        f"{run.seed}: {score:.0f}" for run, score in zip(cell.runs, cell.scores, strict=True)
    )
    mean = f"{cell.mean:.0f}{interval(low, high)}"
    ahead = "" if cell is first else f"{found.value:.0f}{interval(found.low, found.high)}"
    where = f"{cell.task}, {cell.background}"
    columns = (where, cell.variant.label, cell.n, seeds, mean, ahead, welch(first, cell))
    return f"| {' | '.join(map(str, columns))} |"


def welch(first: Cell, cell: Cell) -> str:
    """Return Welch's 95 % interval for the difference of the means of two methods."""
    if cell is first or min(first.n, cell.n) < FEWEST:
        return ""
    found = stats.ttest_ind(first.scores, cell.scores, equal_var=False).confidence_interval()
    return f"[{found.low:.0f}, {found.high:.0f}]"


if __name__ == "__main__":
    cells = cells_at(load_study([Path(sys.argv[1])]), STEP, LAST)
    print("| setting | method | n | score by seed | mean | SIBE minus it | by Welch |")
    print("|---|---|---|---|---|---|---|")
    for cell in cells:
        same = [c for c in cells if (c.background, c.task) == (cell.background, cell.task)]
        print(row(cell, same[0]))
