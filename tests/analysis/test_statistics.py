"""Statistics against scipy, brute force and simulation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sibe.analysis import statistics as s

RNG = np.random.default_rng(0)
TASKS = [RNG.normal(0.5, 0.2, 5), RNG.normal(0.7, 0.1, 4), RNG.normal(0.2, 0.3, 7)]
OTHERS = [RNG.normal(0.4, 0.2, 6), np.append(TASKS[1][:2], 0.3), RNG.normal(0.2, 0.3, 5)]


def test_mean_and_standard_error() -> None:
    x = RNG.normal(size=6)
    assert s.mean_and_se(x) == pytest.approx((x.mean(), stats.sem(x)))
    mean, se = s.mean_and_se([3.0])
    assert mean == 3 and np.isnan(se)
    assert np.isnan(s.mean_and_se([])).all()


def test_student_interval_is_scipys_and_ignores_absent_seeds() -> None:
    x = RNG.normal(5, 2, size=(3, 6))
    x[1, 4:] = np.nan
    x[2, 2:] = np.nan  # two left: too few
    low, high = s.t_interval(x)
    for row, n in ((0, 6), (1, 4)):
        seeds = x[row, :n]
        want = stats.t.interval(0.95, n - 1, loc=seeds.mean(), scale=stats.sem(seeds))
        assert (low[row], high[row]) == pytest.approx(want)
    assert np.isnan([low[2], high[2]]).all()


def test_bootstrap_interval_against_scipy_and_all_resamples() -> None:
    x = RNG.exponential(size=5)
    # All 5^5 resamples: what a bootstrap estimates.
    means = [np.mean(draw) for draw in itertools.product(x, repeat=5)]
    exact = np.quantile(means, [0.025, 0.975])
    got = s.bootstrap_interval(x, np.random.default_rng(1), resamples=40_000)
    np.testing.assert_allclose(got, exact, atol=0.03)
    want = stats.bootstrap(
        (x,), np.mean, method="percentile", n_resamples=40_000, rng=np.random.default_rng(2)
    ).confidence_interval
    np.testing.assert_allclose(got, want, atol=0.03)
    assert np.isnan(s.bootstrap_interval(x[:2], np.random.default_rng(1))).all()


def test_difference_of_means_against_all_resamples() -> None:
    x, y = np.array([5.0, 6.5, 4.2, 7.1]), np.array([3.0, 3.7, 1.9])
    value, low, high = s.difference_of_means(x, y, np.random.default_rng(1), resamples=40_000)
    assert value == pytest.approx(x.mean() - y.mean())
    means = [
        np.array([np.mean(draw) for draw in itertools.product(scores, repeat=len(scores))])
        for scores in (x, y)
    ]
    exact = np.quantile(np.subtract.outer(*means), [0.025, 0.975])
    assert (low, high) == pytest.approx(tuple(exact), abs=0.03)
    assert np.isnan(s.difference_of_means(x, y[:2], RNG)[1:]).all()


def test_interquartile_mean_is_scipys_trimmed_mean() -> None:
    for scores in (TASKS, [np.arange(8.0)], [np.array([1.0, 5.0])], [np.array([7.0])]):
        want = stats.trim_mean(np.concatenate(scores), 0.25)
        assert s.interquartile_mean(scores) == pytest.approx(want)
    assert s.interquartile_mean([np.arange(8.0)]) == np.mean([2, 3, 4, 5])


def test_interquartile_mean_resamples_within_tasks() -> None:
    """A plain loop that draws seeds task by task finds the same interval."""
    rng = np.random.default_rng(3)
    draws = [
        stats.trim_mean(np.concatenate([rng.choice(task, task.size) for task in TASKS]), 0.25)
        for _ in range(2000)
    ]
    got = s.interquartile_mean_interval(TASKS, np.random.default_rng(4), resamples=20_000)
    np.testing.assert_allclose(got[1:], np.quantile(draws, [0.025, 0.975]), atol=0.02)
    # With tasks far apart and no spread within them nothing is uncertain: strata are kept.
    apart = [np.full(3, 0.1), np.full(3, 0.9)]
    assert s.interquartile_mean_interval(apart, rng) == pytest.approx((0.5, 0.5, 0.5))


def test_probability_of_improvement_is_mann_whitneys() -> None:
    per_task = [
        stats.mannwhitneyu(x, y).statistic / (len(x) * len(y))
        for x, y in zip(TASKS, OTHERS, strict=True)
    ]
    assert s.probability_of_improvement(TASKS, OTHERS) == pytest.approx(np.mean(per_task))
    wins = [(a > b) + 0.5 * (a == b) for a, b in itertools.product(TASKS[1], OTHERS[1])]
    assert s.probability_of_improvement(TASKS[1:2], OTHERS[1:2]) == pytest.approx(np.mean(wins))
    assert s.probability_of_improvement(TASKS, TASKS) == 0.5
    there = s.probability_of_improvement(TASKS, OTHERS)
    assert s.probability_of_improvement(OTHERS, TASKS) == pytest.approx(1 - there)


def test_interval_of_the_probability_of_improvement() -> None:
    rng = np.random.default_rng(5)

    def beaten(x: np.ndarray, y: np.ndarray) -> float:
        x, y = rng.choice(x, x.size), rng.choice(y, y.size)
        return float(np.mean([(a > b) + 0.5 * (a == b) for a in x for b in y]))

    draws = [
        np.mean([beaten(x, y) for x, y in zip(TASKS, OTHERS, strict=True)]) for _ in range(1500)
    ]
    got = s.probability_of_improvement_interval(TASKS, OTHERS, np.random.default_rng(6))
    np.testing.assert_allclose(got[1:], np.quantile(draws, [0.025, 0.975]), atol=0.03)


def test_performance_profile_counts_runs() -> None:
    thresholds = np.linspace(0, 1, 21)
    share, low, high = s.performance_profile(TASKS, thresholds, np.random.default_rng(7))
    for threshold, value in zip(thresholds, share, strict=True):
        counts = [sum(score > threshold for score in task) / len(task) for task in TASKS]
        assert value == pytest.approx(np.mean(counts))
    assert (low <= share).all() and (share <= high).all()
    assert (np.diff(share) <= 0).all()
    # A score at the threshold is not above it.
    assert s.performance_profile([[0.5, 0.5, 1.0]], np.array([0.5]), RNG)[0] == pytest.approx(1 / 3)


def test_too_few_seeds_have_no_interval() -> None:
    one = [np.array([0.5]), np.array([0.2, 0.4, 0.6])]
    rng = np.random.default_rng(8)
    assert np.isnan(s.interquartile_mean_interval(one, rng)[1:]).all()
    assert np.isnan(s.probability_of_improvement_interval(one, TASKS[:2], rng)[1:]).all()
    two = [np.array([1.0, 2.0])], [np.array([0.0, 0.5])]
    assert np.isnan(s.probability_of_improvement_interval(*two, rng)[1:]).all()
    assert np.isnan(s.performance_profile(one, np.array([0.3]), rng)[1:]).all()


def test_one_seed_one_result() -> None:
    before = np.random.get_state(legacy=False)["state"]["key"].copy()
    for first, second in zip(_intervals(9), _intervals(9), strict=True):
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(_intervals(9)[0], _intervals(10)[0])
    np.testing.assert_array_equal(np.random.get_state(legacy=False)["state"]["key"], before)


def _intervals(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        s.bootstrap_interval(TASKS[0], rng),
        s.interquartile_mean_interval(TASKS, rng),
        s.probability_of_improvement_interval(TASKS, OTHERS, rng),
        s.performance_profile(TASKS, np.linspace(0, 1, 5), rng)[1],
    ]


def coverage(
    interval: Callable[[Any, np.random.Generator], tuple[float, float]],
    truth: float,
    sample: Callable[[np.random.Generator], Any],
    repeats: int = 400,
) -> float:
    """Return how often interval(sample(rng), rng) holds the truth."""
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(repeats):
        low, high = interval(sample(rng), rng)
        hits += low <= truth <= high
    return hits / repeats


def test_coverage_by_simulation() -> None:
    """With 400 repeats the rate of a true 95 % interval is 0.95 ± 0.011."""

    def student(x: np.ndarray, _: object) -> tuple[float, float]:
        low, high = s.t_interval(x[None])
        return float(low[0]), float(high[0])

    def bootstrap(x: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
        return s.bootstrap_interval(x, rng, resamples=500)

    five = coverage(student, 3.0, lambda rng: rng.normal(3, 1, 5))
    assert 0.91 <= five <= 0.98
    many = coverage(bootstrap, 3.0, lambda rng: rng.normal(3, 1, 40))
    assert 0.90 <= many <= 0.98
    # Why the curves' bands are Student's: five seeds are too few for the bootstrap.
    assert coverage(bootstrap, 3.0, lambda rng: rng.normal(3, 1, 5)) < 0.9


def test_coverage_of_the_aggregates() -> None:
    centers = np.array([0.2, 0.5, 0.8])
    big = np.random.default_rng(12).normal(centers[:, None], 0.1, (3, 200_000))
    truth = s.interquartile_mean(list(big))

    def iqm(tasks: list[np.ndarray], rng: np.random.Generator) -> tuple[float, float]:
        return s.interquartile_mean_interval(tasks, rng, resamples=400)[1:]

    rate = coverage(iqm, truth, lambda rng: list(rng.normal(centers[:, None], 0.1, (3, 20))))
    assert 0.89 <= rate <= 0.99

    # X ~ N(0.3, 1), Y ~ N(0, 1): P(X > Y) = Φ(0.3/√2).
    def improvement(pair: list[np.ndarray], rng: np.random.Generator) -> tuple[float, float]:
        x, y = pair
        return s.probability_of_improvement_interval(list(x), list(y), rng, resamples=400)[1:]

    def pair(rng: np.random.Generator) -> list[np.ndarray]:
        return [rng.normal(0.3, 1, (3, 15)), rng.normal(0, 1, (3, 15))]

    rate = coverage(improvement, stats.norm.cdf(0.3 / np.sqrt(2)), pair)
    assert 0.89 <= rate <= 0.99
