"""Backgrounds of other colors and orientations than those that were seen."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_LIKE_ROBOT = 0.6  # share of the backgrounds that get the robot's color somewhere
_SPREADS = (4.0, 15.0, 30.0)  # how close to it, as standard deviations of a channel


def recolored(
    frames: npt.NDArray[np.uint8], color: npt.NDArray[np.float64], rng: np.random.Generator
) -> Tensor:
    """Return frames ``[N, S, S, 3]`` in other colors, flipped and transposed; floats in 0…255.

    Channels are permuted, stretched and shifted, so that the color of a random pixel becomes any
    other, or one near ``color [3]``: that of the robot must not tell it from everything else.
    """
    side = frames.shape[1]
    seen = []
    for frame in frames:
        image = frame[..., rng.permutation(3)].astype(np.float32)
        gain = rng.uniform(0.4, 1.6, 3) * (-1 if rng.random() < 0.25 else 1)
        pivot = image[rng.integers(side), rng.integers(side)]
        if rng.random() < _LIKE_ROBOT:
            becomes = color + rng.normal(size=3) * rng.choice(_SPREADS)
        else:
            becomes = rng.uniform(0, 255, 3)
        image = ((image - pivot) * gain + becomes).clip(0, 255).astype(np.float32)
        image = image[:: rng.choice((1, -1)), :: rng.choice((1, -1))]
        seen.append(image.transpose(1, 0, 2) if rng.random() < 0.5 else image)
    return torch.from_numpy(np.stack(seen))
