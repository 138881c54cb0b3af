"""What an agent makes of observations: its representations, by name, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.fft import dctn

from sibe.envs.rendering.renderer import Frame

_BATCH = 256
_LUMINANCE = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601

Floats = npt.NDArray[np.float64]


def represent(agent: Any, states: Frame) -> dict[str, Floats]:
    """Return c, and z if the method has one, of states uint8 ``[N, H, W, C]``: ``[N, D]`` each.

    What the method adds comes first, c last.
    """
    batches = [
        agent.embed(np.ascontiguousarray(states[first : first + _BATCH]))
        for first in range(0, len(states), _BATCH)
    ]
    names = sorted(batches[0], key=lambda name: (name == "c", name))
    return {
        name: np.concatenate([batch[name].cpu().numpy() for batch in batches]).astype(np.float64)
        for name in names
    }


def low_frequencies(pictures: Frame, count: int = 4) -> Floats:
    """Return the coarse content of pictures ``[N, H, W, 3]``: ``[N, count²]``.

    The lowest ``count`` × ``count`` coefficients of the cosine transform (DCT-II, orthonormal) of
    the luminance: distances between them are distances between the blurred pictures.
    """
    gray = pictures.astype(np.float64) @ _LUMINANCE
    coefficients: Floats = dctn(gray, axes=(1, 2), norm="ortho")[:, :count, :count]
    return coefficients.reshape(len(pictures), -1)
