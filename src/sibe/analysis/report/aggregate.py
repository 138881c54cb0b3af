"""All tasks of a setting in one number: interquartile mean, profile, probability of improvement.

Returns of the DeepMind Control suite lie between 0 and 1000, so a score is the return over 1000;
other tasks have no such scale and stay out. Only tasks that every variant has a score for count:
otherwise a variant would win by what it left out.
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
from sibe.analysis.variants import Variant
from sibe.envs.tasks import SUITE_TASKS

FULL_SCORE = 1000.0
THRESHOLDS: Floats = np.linspace(0, 1, 101)[:-1]
_SEED = 0


class VariantAggregate(NamedTuple):
    """One variant over all tasks that count."""

    variant: Variant
    runs: int
    iqm: Estimate
    profile: tuple[Floats, Floats, Floats]
    """share of runs above each of ``THRESHOLDS``, and both ends of its band"""
    improvement: Estimate | None
    """probability that a seed of the first variant beats one of this variant; None for the first"""


class Aggregate(NamedTuple):
    """A setting."""

    background: str
    tasks: list[str]
    left_out: list[str]
    """tasks without a scale, or that a variant lacks"""
    variants: list[VariantAggregate]


def aggregate(
    cells: Sequence[Cell], variants: Sequence[Variant], background: str
) -> Aggregate | None:
    """Return the aggregates of one setting; None if no task counts, or there is but one run."""
    here = {
        (c.variant.key, c.task): c
        for c in cells
        if c.background == background and c.variant in variants
    }
    present = [variant for variant in variants if any(key == variant.key for key, _ in here)]
    everything = list(dict.fromkeys(task for _, task in here))
    tasks = [
        task
        for task in everything
        if task in SUITE_TASKS and all((variant.key, task) in here for variant in present)
    ]
    if not tasks:
        return None
    scores = {
        variant.key: [np.asarray(here[variant.key, task].scores) / FULL_SCORE for task in tasks]
        for variant in present
    }
    if sum(task.size for each in scores.values() for task in each) < 2:
        return None
    first = present[0]
    return Aggregate(
        background,
        tasks,
        [task for task in everything if task not in tasks],
        [
            _aggregate_variant(variant, scores[variant.key], first, scores[first.key])
            for variant in present
        ],
    )


def _aggregate_variant(
    variant: Variant, scores: list[Floats], first: Variant, first_scores: list[Floats]
) -> VariantAggregate:
    # A generator per variant: its interval does not depend on which others are in the report.
    rng = np.random.default_rng(_SEED)
    iqm = interquartile_mean_interval(scores, rng)
    profile = performance_profile(scores, THRESHOLDS, rng)
    better = None
    if variant != first:
        better = probability_of_improvement_interval(first_scores, scores, rng)
    return VariantAggregate(variant, sum(task.size for task in scores), iqm, profile, better)
