"""Statistics over seeds and tasks: pure functions on arrays, every draw from a generator passed in.

One score per seed is the unit, never one per episode: the episodes of a run share its agent.
Scores of several tasks are a list of arrays, one per task; they are the strata, and a bootstrap
draws seeds with replacement within each. Too few scores for an interval give nan, not a guess.
The aggregates follow Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]

RESAMPLES = 2000
FEWEST = 3
"""An interval over fewer seeds than this says nothing that the values themselves do not."""


class Estimate(NamedTuple):
    """A number with its 95 % interval; the ends are nan where there are too few scores."""

    value: float
    low: float
    high: float


def mean_and_se(scores: ArrayLike) -> tuple[float, float]:
    """Return the mean of [seeds] and its standard error s/√n; nan for the latter if n < 2."""
    x = np.asarray(scores, dtype=np.float64)
    if x.size == 0:
        return np.nan, np.nan
    return float(x.mean()), float(x.std(ddof=1) / np.sqrt(x.size)) if x.size > 1 else np.nan


def t_interval(scores: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return Student's interval for the mean over the last axis of [..., seeds]: low, high [...].

    nan entries are absent seeds. Exact for Gaussian scores at any n, where the bootstrap of a
    handful of seeds is too narrow; nan where fewer than ``FEWEST`` seeds are present.
    """
    n = np.isfinite(scores).sum(-1)
    low = np.full(n.shape, np.nan)
    high = low.copy()
    enough = n >= FEWEST
    if enough.any():
        x, count = scores[enough], n[enough]
        mean = np.nanmean(x, axis=-1)
        half = stats.t.ppf(0.5 + level / 2, count - 1) * np.nanstd(x, axis=-1, ddof=1)
        half = half / np.sqrt(count)
        low[enough], high[enough] = mean - half, mean + half
    return low, high


def bootstrap_interval(
    scores: ArrayLike, rng: np.random.Generator, *, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Return the percentile bootstrap interval for the mean of [seeds]."""
    x = np.asarray(scores, dtype=np.float64)
    if x.size < FEWEST:
        return np.nan, np.nan
    means = x[rng.integers(x.size, size=(resamples, x.size))].mean(axis=1)
    low, high = np.quantile(means, _tails(level))
    return float(low), float(high)


def difference_of_means(
    x: ArrayLike, y: ArrayLike, rng: np.random.Generator, *, resamples: int = RESAMPLES
) -> Estimate:
    """Return mean(x) - mean(y) of two methods' [seeds] and its percentile bootstrap interval.

    Both are resampled on their own: the same seed number starts two methods from different
    weights, so there is nothing to pair.
    """
    a, b = (np.asarray(scores, dtype=np.float64) for scores in (x, y))
    value = float(a.mean() - b.mean())
    if min(a.size, b.size) < FEWEST:
        return Estimate(value, np.nan, np.nan)
    (xs,), (ys,) = _resampled([a], rng, resamples), _resampled([b], rng, resamples)
    low, high = np.quantile(xs.mean(axis=1) - ys.mean(axis=1), _tails(0.95))
    return Estimate(value, float(low), float(high))


def interquartile_mean(scores: Sequence[ArrayLike]) -> float:
    """Return the mean of the middle half of all scores of all tasks [task][seeds], pooled."""
    pooled = np.concatenate([np.asarray(task, dtype=np.float64) for task in scores])
    return float(_middle_half_mean(pooled[None])[0])


def interquartile_mean_interval(
    scores: Sequence[ArrayLike], rng: np.random.Generator, *, resamples: int = RESAMPLES
) -> Estimate:
    """Return the interquartile mean of [task][seeds] and its stratified bootstrap interval."""
    value = interquartile_mean(scores)
    draws = _resampled(scores, rng, resamples)
    return _with_interval(value, lambda: _middle_half_mean(np.concatenate(draws, axis=1)), scores)


def probability_of_improvement(x: Sequence[ArrayLike], y: Sequence[ArrayLike]) -> float:
    """Return P(X > Y) + P(X = Y)/2 for a seed of each, averaged over tasks.

    Per task this is the Mann–Whitney statistic U / (n·m).
    """
    pairs = zip(x, y, strict=True)
    return float(
        np.mean([_superiority(np.asarray(a)[None], np.asarray(b)[None]) for a, b in pairs])
    )


def probability_of_improvement_interval(
    x: Sequence[ArrayLike],
    y: Sequence[ArrayLike],
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return the probability of improvement of [task][seeds] over the same, with its interval."""
    value = probability_of_improvement(x, y)
    xs, ys = _resampled(x, rng, resamples), _resampled(y, rng, resamples)

    def draws() -> Floats:
        tasks = [_superiority(a, b) for a, b in zip(xs, ys, strict=True)]
        return np.asarray(np.mean(tasks, axis=0), dtype=np.float64)

    return _with_interval(value, draws, x, y)


def performance_profile(
    scores: Sequence[ArrayLike],
    thresholds: Floats,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
) -> tuple[Floats, Floats, Floats]:
    """Return the share of runs that score above each threshold, averaged over tasks.

    Args:
        scores: [task][seeds].
        thresholds: [T].
        rng: for the stratified bootstrap.
        resamples: how many draws.

    Returns:
        The share and both ends of its point-wise 95 % band, [T] each.
    """
    share = np.mean([_above(np.asarray(task)[None], thresholds)[0] for task in scores], axis=0)
    if _too_few(scores):
        return share, np.full(share.shape, np.nan), np.full(share.shape, np.nan)
    draws = [_above(task, thresholds) for task in _resampled(scores, rng, resamples)]
    low, high = np.quantile(np.mean(draws, axis=0), _tails(0.95), axis=0)
    return share, low, high


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


def _too_few(scores: Sequence[ArrayLike]) -> bool:
    # A task with one seed is drawn the same every time: its uncertainty would go missing.
    sizes = [np.size(task) for task in scores]
    return min(sizes) < 2 or sum(sizes) < FEWEST


def _with_interval(
    value: float, draws: Callable[[], Floats], *variants: Sequence[ArrayLike]
) -> Estimate:
    if any(map(_too_few, variants)):
        return Estimate(value, np.nan, np.nan)
    low, high = np.quantile(draws(), _tails(0.95))
    return Estimate(value, float(low), float(high))


def _resampled(
    scores: Sequence[ArrayLike], rng: np.random.Generator, resamples: int
) -> list[Floats]:
    """Draw seeds with replacement within each task: [task][resamples, seeds]."""
    tasks = [np.asarray(task, dtype=np.float64) for task in scores]
    return [task[rng.integers(task.size, size=(resamples, task.size))] for task in tasks]


def _middle_half_mean(scores: Floats) -> Floats:
    """Return [rows] means of [rows, n] without the lowest and highest ⌊n/4⌋ of each row."""
    n = scores.shape[1]
    cut = n // 4
    return np.asarray(np.sort(scores, axis=1)[:, cut : n - cut].mean(axis=1), dtype=np.float64)


def _superiority(a: Floats, b: Floats) -> Floats:
    """Return [rows] of U / (n·m) for [rows, n] against [rows, m]; a tie counts half."""
    difference = np.sign(a[:, :, None] - b[:, None, :])
    return np.asarray((1 + difference).mean(axis=(1, 2)) / 2, dtype=np.float64)


def _above(scores: Floats, thresholds: Floats) -> Floats:
    """Return [rows, T]: the share of [rows, n] that is above each threshold [T]."""
    # Sorted rows and a search would be faster; this is exact, plain and small enough.
    return np.stack([(scores > threshold).mean(axis=1) for threshold in thresholds], axis=1)
