"""What a policy may be shown: the pixels that its environment gives, and nothing near them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sibe.config.schema import EnvConfig
from sibe.errors import UserError

Shape = tuple[int, int, int]


class ObservationError(UserError, ValueError):
    """A policy was given something else than the states that it was trained on."""


def state_shape(config: EnvConfig) -> Shape:
    """Return [H, W, C] of the states of an environment."""
    return config.size, config.size, 3 * config.stack


def check_observation(obs: npt.NDArray[np.uint8], shape: Shape) -> None:
    """Refuse whatever is not uint8 ``shape``, or a batch of that, and say how to get there."""
    if (
        isinstance(obs, np.ndarray)
        and obs.dtype == np.uint8
        and obs.shape[-3:] == shape
        and obs.ndim in (3, 4)
    ):
        return
    wanted = f"uint8 {list(shape)}"
    raise ObservationError(f"the policy takes {wanted} or a batch of it, {_mistake(obs, shape)}")


def _mistake(obs: object, shape: Shape) -> str:
    if not isinstance(obs, np.ndarray):
        return f"not a {type(obs).__name__}: give a NumPy array"
    given = f"not {obs.dtype} {list(obs.shape)}"
    height, width, channels = shape
    if obs.shape[-3:] == (channels, height, width) and obs.ndim in (3, 4):
        return f"{given}: channels come last, np.moveaxis(obs, -3, -1)"
    if obs.shape[-3:] != shape or obs.ndim not in (3, 4):
        fits = f"size={height}, stack={channels // 3}"
        return f"{given}: make the environment by policy.make_env(), or with {fits}"
    return f"{given}: give the pixels as the environment does, 0 to 255, not scaled"
