"""A curve over seeds: values of several runs on one axis of env steps, their mean and 95 % band."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sibe.analysis.runs import Run
from sibe.analysis.statistics import Floats, t_interval

_BINS = 60


class Series(NamedTuple):
    """One curve."""

    env_step: Floats
    """[T] ascending"""
    values: Floats
    """[T, seeds]; nan where a seed has none"""
    seeds: list[int]

    @property
    def n(self) -> Floats:
        """[T] seeds that have a value."""
        return np.asarray(np.isfinite(self.values).sum(axis=1), dtype=np.float64)

    @property
    def mean(self) -> Floats:
        """[T] mean over the seeds that have a value."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # no seed: nan is what we want
            return np.asarray(np.nanmean(self.values, axis=1), dtype=np.float64)

    @property
    def band(self) -> tuple[Floats, Floats]:
        """[T] each: Student's 95 % interval for the mean; nan where there are too few seeds."""
        return t_interval(self.values)


def return_series(runs: Sequence[Run]) -> Series:
    """Return the evaluations of runs of one variant and task.

    Runs may have been evaluated at different steps: in between its own evaluations a run counts
    with the straight line that connects them, before its first and after its last not at all.
    """
    steps = np.unique(np.concatenate([run.evals["frame"] for run in runs]))
    values = [
        np.interp(steps, run.evals["frame"], run.evals["episode_reward"], left=np.nan, right=np.nan)
        for run in runs
    ]
    return Series(steps, np.stack(values, axis=1), [run.seed for run in runs])


def metric_series(runs: Sequence[Run], metric: str) -> Series | None:
    """Return a column of train.csv as means over equal stretches of env steps; None if empty."""
    points = []
    for run in runs:
        table = run.training
        known = np.isfinite(table[metric]) if metric in table else np.zeros(0, dtype=bool)
        if known.any():
            points.append((run.seed, table["frame"][known], table[metric][known]))
    if not points:
        return None
    last = max(frames.max() for _, frames, _ in points)
    bins = min(_BINS, max(len(frames) for _, frames, _ in points))
    edges = np.linspace(0, last, bins + 1)
    values = np.full((bins, len(points)), np.nan)
    for column, (_, frames, numbers) in enumerate(points):
        place = np.clip(np.searchsorted(edges, frames, side="left") - 1, 0, bins - 1)
        for row in np.unique(place):
            values[row, column] = numbers[place == row].mean()
    full = np.isfinite(values).any(axis=1)
    return Series(edges[1:][full], values[full], [seed for seed, _, _ in points])
