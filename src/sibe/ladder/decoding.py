"""How well each quantity of the state is known, on held-out episodes."""

from __future__ import annotations

import numpy as np

from sibe.analysis.representation.ridge import Floats, held_out_predictions, r_squared
from sibe.ladder.fixed_episodes import HeldOutSamples


def r2_of_predictions(moments: HeldOutSamples, predicted: Floats) -> Floats:
    """Return R² of ``predicted [N, K]`` for each quantity ``[K]``; NaN where nothing varies."""
    asked = moments.held_out
    together = np.zeros(int(asked.sum()), np.int64)
    score: Floats = r_squared(moments.states[asked], predicted[asked], together, np.ones((1, 1)))[0]
    return score


def r2_of_features(moments: HeldOutSamples, features: Floats) -> Floats:
    """Return R² ``[K]`` of a ridge regression on ``features [N, D]``.

    It is fitted to the episodes that are not held out.
    """
    predicted = held_out_predictions(features, moments.states, moments.fold)
    return r2_of_predictions(moments, predicted)


def mean_r2(r2: Floats) -> float:
    """Return the mean over the quantities that vary."""
    known = r2[np.isfinite(r2)]
    return float(known.mean()) if len(known) else float("nan")
