"""Intervals for means over samples that come in episodes: episodes are resampled, not samples.

Samples of one episode resemble each other, so they are worth less than as many independent ones;
drawing whole episodes with replacement keeps that in the width of the interval.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sibe.analysis.statistics import Estimate, Floats

RESAMPLES = 1000

Indices = npt.NDArray[np.int64]


def bootstrap_weights(clusters: int, rng: np.random.Generator) -> Floats:
    """Return how often each cluster is counted, ``[1 + RESAMPLES, E]``: once, then as drawn."""
    drawn = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=RESAMPLES)
    return np.concatenate((np.ones((1, clusters)), drawn)).astype(np.float64)


def cluster_sums(values: Floats, cluster: Indices, clusters: int) -> Floats:
    """Return the sum of ``values [N, Q]`` in each of the clusters 0 … E - 1: ``[E, Q]``."""
    sums = np.zeros((clusters, values.shape[1]))
    np.add.at(sums, cluster, values)
    return sums


def clustered_mean(values: Floats, cluster: Indices, weights: Floats) -> Floats:
    """Return the mean of ``values [N]`` under each weighting of the clusters: ``[R]``."""
    both = np.stack((values, np.ones(len(values))), axis=1)
    total, count = (weights @ cluster_sums(both, cluster, weights.shape[1])).T
    mean: Floats = total / count
    return mean


def interval(values: Floats) -> Estimate:
    """Return the first of ``values [R]`` and the middle 95 % of the others; nan is left out."""
    rest = values[1:][np.isfinite(values[1:])]
    low, high = np.percentile(rest, [2.5, 97.5]) if rest.size else (np.nan, np.nan)
    return Estimate(float(values[0]), float(low), float(high))
