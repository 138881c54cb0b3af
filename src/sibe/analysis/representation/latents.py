"""What an agent makes of observations: its representations, by name, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.fft import dctn

from sibe.envs.rendering.renderer import Frame
from sibe.envs.sensors import Observation, count, each

_BATCH = 256
_LUMINANCE = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601

Floats = npt.NDArray[np.float64]


def represent(agent: Any, states: Observation, without: str | None = None) -> dict[str, Floats]:
    """Return c, and z if the method has one, of states uint8 ``[N, H, W, C]``: ``[N, D]`` each.

    What the method adds comes first, c last. States may be readings by sensor; ``without`` names
    a sensor that gives none.
    """
    number = count(states)
    missing: list[Any] = [] if without is None else [[name == without for name in states]]
    batches = []
    for first in range(0, number, _BATCH):
        last = min(first + _BATCH, number)
        some = each(lambda part, a=first, b=last: np.ascontiguousarray(part[a:b]), states)
        batches.append(agent.embed(some, *(np.tile(row, (last - first, 1)) for row in missing)))
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
