"""Print after how many env steps later runs return what earlier ones returned at their end.

    .venv/bin/python scripts/time_to_return.py EARLIER LATER

EARLIER, LATER: folders with runs of one method in one setting. The goal is the mean of the earlier
runs' last evaluations; it is reached where the mean curve of the later ones first does. In brackets
a 95 % bootstrap interval over the later runs' seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from sibe.analysis.runs import read_runs
from sibe.analysis.series import return_series
from sibe.analysis.statistics import RESAMPLES, Floats


def first_reached(env_step: Floats, values: Floats, goal: float) -> float:
    """Return where straight lines through ``values [T]`` first reach ``goal``; inf if never."""
    above = np.flatnonzero(values >= goal)
    if not above.size:
        return np.inf
    end = max(above[0], 1)
    return float(np.interp(goal, values[end - 1 : end + 1], env_step[end - 1 : end + 1]))


if __name__ == "__main__":
    earlier, later = (return_series(read_runs([Path(folder)])[0]) for folder in sys.argv[1:3])
    goal = float(earlier.mean[-1])
    rng, n = np.random.default_rng(0), len(later.seeds)
    draws = (later.values[:, rng.integers(n, size=n)] for _ in range(RESAMPLES))
    reached = [first_reached(later.env_step, values.mean(axis=1), goal) for values in draws]
    low, high = np.quantile(reached, (0.025, 0.975), method="nearest")
    at = first_reached(later.env_step, later.mean, goal)
    print(
        f"return {goal:.0f}: after {earlier.env_step[-1]:.0f} env steps "
        f"(n = {len(earlier.seeds)}), later after {at:.0f} [{low:.0f}, {high:.0f}] (n = {n})"
    )
