"""What a representation knows: how well a linear map of it predicts a quantity."""

from __future__ import annotations

import torch
from torch import Tensor


def r_squared(features: Tensor, quantities: Tensor) -> Tensor:
    """Return R² of each quantity ``[N, Q] -> [Q]``, from ``features [N, D]``.

    Least squares on the first half of the rows, judged on the second: 1 is perfect, 0 no better
    than the mean.
    """
    inputs = torch.cat((features, torch.ones(len(features), 1)), dim=1)
    half = len(features) // 2
    weights = torch.linalg.lstsq(inputs[:half], quantities[:half]).solution
    truth = quantities[half:]
    unexplained = (truth - inputs[half:] @ weights).square().sum(0)
    score: Tensor = 1 - unexplained / (truth - truth.mean(0)).square().sum(0)
    return score
