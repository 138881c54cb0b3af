"""Linear decoding: ridge regression, judged on episodes it never saw.

Neighboring moments of an episode are nearly the same moment, so episodes are never split: each
is predicted by a map fitted to others, whose penalty was chosen on others still.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sibe.analysis.representation.cluster_bootstrap import cluster_sums

FOLDS = 5
PENALTIES = np.logspace(-6, 3, 10)  # per sample, on features of unit variance

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def ridge(x: Floats, y: Floats, penalties: Floats) -> Floats:
    """Return weights ``[len(penalties), D, Q]`` that minimize |y - xw|²/N + penalty·|w|².

    One eigendecomposition of x'x serves all penalties; x ``[N, D]`` and y ``[N, Q]`` are centered.
    """
    power, axes = np.linalg.eigh(x.T @ x / len(x))
    projected = axes.T @ (x.T @ y / len(x))
    shrunk = projected / (np.maximum(power, 0.0) + penalties[:, None])[..., None]
    weights: Floats = axes @ shrunk
    return weights


def held_out_predictions(x: Floats, y: Floats, fold: Indices) -> Floats:
    """Predict y ``[N, Q]`` from x ``[N, D]``, every fold by the others: ``[N, Q]``.

    The penalty is chosen for each quantity on one of the training folds and the map is then
    fitted to all of them.
    """
    folds = np.unique(fold)
    predicted = np.empty_like(y)
    for number, held_out in enumerate(folds):
        test = fold == held_out
        validation = fold == folds[(number + 1) % len(folds)]
        chosen = _choose(x, y, ~test & ~validation, validation)
        predicted[test] = _fit_predict(x, y, ~test, test)[chosen, :, np.arange(y.shape[1])].T
    return predicted


def _choose(x: Floats, y: Floats, train: Mask, judge: Mask) -> Indices:
    """Return the index of the best penalty for each quantity ``[Q]``."""
    error = ((_fit_predict(x, y, train, judge) - y[judge]) ** 2).sum(axis=1)
    best: Indices = error.argmin(axis=0)
    return best


def _fit_predict(x: Floats, y: Floats, train: Mask, test: Mask) -> Floats:
    """Fit to ``train`` and predict ``test`` with every penalty: ``[len(PENALTIES), M, Q]``."""
    center, scale = x[train].mean(axis=0), x[train].std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    level = y[train].mean(axis=0)
    weights = ridge((x[train] - center) / scale, y[train] - level, PENALTIES)
    predicted: Floats = (x[test] - center) / scale @ weights + level
    return predicted


def r_squared(y: Floats, predicted: Floats, cluster: Indices, weights: Floats) -> Floats:
    """Return R² of each quantity under each weighting of the clusters: ``[R, Q]``.

    Args:
        y, predicted: ``[N, Q]``.
        cluster: ``[N]``, from 0 to E - 1.
        weights: ``[R, E]``: how often each cluster is counted.
    """
    centered = y - y.mean(axis=0)  # against loss of digits below
    count, first, second, unexplained = (
        weights @ cluster_sums(values, cluster, weights.shape[1])
        for values in (np.ones((len(y), 1)), centered, centered**2, (y - predicted) ** 2)
    )
    variation = second - first**2 / count
    with np.errstate(divide="ignore", invalid="ignore"):
        score: Floats = np.where(variation > 0, 1 - unexplained / variation, np.nan)
    return score
