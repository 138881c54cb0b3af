"""Ridge, R², intervals and neighbors against other ways to compute them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.neighbors import NearestNeighbors

from sibe.analysis.representation.cluster_bootstrap import (
    bootstrap_weights,
    clustered_mean,
    interval,
)
from sibe.analysis.representation.neighbors import chance_overlap, nearest, overlap
from sibe.analysis.representation.ridge import FOLDS, held_out_predictions, r_squared, ridge


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_ridge_is_scikit_learns_and_the_closed_form(rng: np.random.Generator) -> None:
    x = rng.normal(size=(60, 7)) @ rng.normal(size=(7, 7))
    x -= x.mean(axis=0)
    y = rng.normal(size=(60, 3))
    y -= y.mean(axis=0)
    penalties = np.array([1e-6, 0.1, 10.0])
    for weights, penalty in zip(ridge(x, y, penalties), penalties, strict=True):
        theirs = Ridge(alpha=60 * penalty, fit_intercept=False).fit(x, y)
        np.testing.assert_allclose(weights, theirs.coef_.T, rtol=1e-6, atol=1e-9)
        # The penalty as further rows of a least-squares problem.
        rows = np.concatenate([x, np.sqrt(60 * penalty) * np.eye(7)])
        right = np.concatenate([y, np.zeros((7, 3))])
        np.testing.assert_allclose(weights, np.linalg.lstsq(rows, right)[0], rtol=1e-6, atol=1e-9)


def test_more_features_than_samples_do_no_harm(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(8, 30)), rng.normal(size=(8, 1))
    assert np.isfinite(ridge(x - x.mean(0), y - y.mean(0), np.array([1e-6]))).all()


def test_r_squared_is_scikit_learns_on_the_resampled_episodes(rng: np.random.Generator) -> None:
    cluster = rng.integers(0, 6, size=80)
    y = rng.normal(size=(80, 2)) + 1000
    predicted = y + rng.normal(size=(80, 2))
    weights = np.array([[1, 1, 1, 1, 1, 1], [0, 2, 1, 0, 3, 0]], np.float64)
    for row, score in zip(weights, r_squared(y, predicted, cluster, weights), strict=True):
        again = np.concatenate(
            [np.tile(np.flatnonzero(cluster == c), int(times)) for c, times in enumerate(row)]
        )
        expected = r2_score(y[again], predicted[again], multioutput="raw_values")
        np.testing.assert_allclose(score, expected)


def test_a_quantity_that_does_not_vary_has_no_r_squared() -> None:
    y = np.ones((4, 1))
    assert np.isnan(r_squared(y, y, np.arange(4), np.ones((1, 4)))).all()


def test_a_planted_code_is_found_and_noise_is_not(rng: np.random.Generator) -> None:
    fold = np.repeat(np.arange(FOLDS), 200)
    y = rng.normal(size=(1000, 3))
    code = np.concatenate([y, rng.normal(size=(1000, 17))], axis=1) @ rng.normal(size=(20, 20))
    weights = np.ones((1, 1000))
    found = r_squared(y, held_out_predictions(code + 5, y, fold), np.arange(1000), weights)
    assert found.min() > 0.999
    noise = rng.normal(size=(1000, 20))
    nothing = r_squared(y, held_out_predictions(noise, y, fold), np.arange(1000), weights)
    assert np.abs(nothing).max() < 0.03
    # Half of the variance is noise that nobody can know.
    half = y + rng.normal(size=y.shape)
    partly = r_squared(half, held_out_predictions(code, half, fold), np.arange(1000), weights)
    np.testing.assert_allclose(partly, 0.5, atol=0.08)


def test_what_is_held_out_is_not_learned_from(rng: np.random.Generator) -> None:
    fold = np.repeat(np.arange(FOLDS), 10)
    x, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 2))
    before = held_out_predictions(x, y, fold)
    for held_out in range(FOLDS):
        other = y.copy()
        other[fold == held_out] = 1e6 * rng.normal(size=(10, 2))
        after = held_out_predictions(x, other, fold)
        np.testing.assert_array_equal(after[fold == held_out], before[fold == held_out])


def test_the_interval_covers_the_truth_when_moments_come_in_episodes() -> None:
    rng = np.random.default_rng(1)
    cluster = np.repeat(np.arange(30), 20)
    covered, naive = 0, 0
    for _ in range(300):
        values = rng.normal(size=30)[cluster] + rng.normal(size=600)  # the true mean is 0
        _, low, high = interval(clustered_mean(values, cluster, bootstrap_weights(30, rng)))
        covered += low <= 0 <= high
        naive += abs(values.mean()) < 1.96 * values.std() / np.sqrt(600)
    assert 0.89 < covered / 300 < 0.98
    assert naive / 300 < 0.7  # what an interval over moments would have claimed


def test_the_first_weighting_is_the_plain_mean(rng: np.random.Generator) -> None:
    values, cluster = rng.normal(size=50), rng.integers(0, 5, 50)
    weights = bootstrap_weights(5, rng)
    assert (weights[1:].sum(axis=1) == 5).all()
    estimate = interval(clustered_mean(values, cluster, weights))
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.low < estimate.value < estimate.high


def test_neighbors_are_those_of_brute_force(rng: np.random.Generator) -> None:
    points = 1e4 + rng.normal(size=(70, 5))
    theirs = NearestNeighbors(n_neighbors=6, algorithm="brute").fit(points)
    expected = theirs.kneighbors(return_distance=False)  # of the points themselves, without self
    np.testing.assert_array_equal(nearest(points, 6), expected)


def test_equal_points_are_neighbors_but_never_their_own() -> None:
    np.testing.assert_array_equal(nearest(np.zeros((4, 2)), 2), [[1, 2], [0, 2], [0, 1], [0, 1]])


def test_overlap_is_that_of_sets(rng: np.random.Generator) -> None:
    first, second = (nearest(rng.normal(size=(40, 3)), 5) for _ in range(2))
    sets = [len(set(a) & set(b)) / 5 for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(overlap(first, second), sets)
    np.testing.assert_array_equal(overlap(first, first), 1)


def test_unrelated_spaces_share_what_chance_says(rng: np.random.Generator) -> None:
    shared = [
        overlap(*(nearest(rng.normal(size=(60, 4)), 10) for _ in range(2))).mean()
        for _ in range(100)
    ]
    error = np.std(shared) / 10
    assert abs(np.mean(shared) - chance_overlap(60, 10)) < 4 * error < 0.01
