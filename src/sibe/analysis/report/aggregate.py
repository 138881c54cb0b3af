"""All tasks of a setting in one number: interquartile mean, profile, probability of improvement.

Returns of the DeepMind Control suite lie between 0 and 1000, so a score is the return over 1000;
other tasks have no such scale and stay out. Only tasks that every arm has a score for count:
otherwise an arm would win by what it left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sibe.analysis.scores import Cell
from sibe.analysis.statistics import (
    Estimate,
    Floats,
    interquartile_mean_interval,
    performance_profile,
    probability_of_improvement_interval,
)
from sibe.analysis.variants import Arm
from sibe.envs.tasks import SUITE_TASKS

FULL_SCORE = 1000.0
THRESHOLDS: Floats = np.linspace(0, 1, 101)[:-1]
_SEED = 0


class ArmAggregate(NamedTuple):
    """One arm over all tasks that count."""

    arm: Arm
    runs: int
    iqm: Estimate
    profile: tuple[Floats, Floats, Floats]
    """share of runs above each of ``THRESHOLDS``, and both ends of its band"""
    improvement: Estimate | None
    """probability that a seed of the first arm beats one of this arm; None for the first"""


class Aggregate(NamedTuple):
    """A setting."""

    background: str
    tasks: list[str]
    left_out: list[str]
    """tasks without a scale, or that an arm lacks"""
    arms: list[ArmAggregate]


def aggregate(cells: Sequence[Cell], arms: Sequence[Arm], background: str) -> Aggregate | None:
    """Return the aggregates of one setting; None if no task counts."""
    here = {(c.arm.key, c.task): c for c in cells if c.background == background and c.arm in arms}
    present = [arm for arm in arms if any(key == arm.key for key, _ in here)]
    everything = list(dict.fromkeys(task for _, task in here))
    tasks = [
        task
        for task in everything
        if task in SUITE_TASKS and all((arm.key, task) in here for arm in present)
    ]
    if not tasks:
        return None
    scores = {
        arm.key: [np.asarray(here[arm.key, task].scores) / FULL_SCORE for task in tasks]
        for arm in present
    }
    first = present[0]
    return Aggregate(
        background,
        tasks,
        [task for task in everything if task not in tasks],
        [_aggregate_arm(arm, scores[arm.key], first, scores[first.key]) for arm in present],
    )


def _aggregate_arm(
    arm: Arm, scores: list[Floats], first: Arm, first_scores: list[Floats]
) -> ArmAggregate:
    # A generator per arm: an arm's interval does not depend on which others are in the report.
    rng = np.random.default_rng(_SEED)
    iqm = interquartile_mean_interval(scores, rng)
    profile = performance_profile(scores, THRESHOLDS, rng)
    better = None
    if arm != first:
        better = probability_of_improvement_interval(first_scores, scores, rng)
    return ArmAggregate(arm, sum(task.size for task in scores), iqm, profile, better)
