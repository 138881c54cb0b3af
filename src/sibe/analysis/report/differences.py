"""How far the first method is above each other one, task by task, with an interval over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from sibe.analysis.scores import Cell
from sibe.analysis.statistics import Estimate, difference_of_means

_SEED = 0


class Difference(NamedTuple):
    """The mean score of ``first`` minus that of ``other`` in one setting and task."""

    first: Cell
    other: Cell
    estimate: Estimate


def differences(cells: Sequence[Cell]) -> list[Difference]:
    """Compare the first variant of each setting and task with the others there."""
    found = []
    for _, group in groupby(cells, key=lambda cell: (cell.background, cell.task)):
        first, *others = group
        for other in others:
            rng = np.random.default_rng(_SEED)
            estimate = difference_of_means(first.scores, other.scores, rng)
            found.append(Difference(first, other, estimate))
    return found
