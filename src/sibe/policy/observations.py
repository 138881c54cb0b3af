"""What a policy may be shown: what its environment gives, and nothing near it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sibe.config.schema import EnvConfig
from sibe.envs.sensors import STATE, Observation
from sibe.errors import UserError, nearest

Shape = tuple[int, int, int]
Shapes = Shape | dict[str, tuple[int, ...]]
"""of a state of pixels alone, or of readings by sensor"""


class ObservationError(UserError, ValueError):
    """A policy was given something else than the states that it was trained on."""


def state_shapes(config: EnvConfig, state_size: int) -> Shapes:
    """Return [H, W, C] of the states of an environment, or shapes by sensor."""
    pixels = config.size, config.size, 3 * config.stack
    if config.seen.bare:
        return pixels
    return {name: (state_size,) if name == STATE else pixels for name in config.seen.names}


def check_readings(readings: Observation, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse whatever is not a dict of readings by sensor, some of which may be left out."""
    names = ", ".join(shapes)
    if not isinstance(readings, dict):
        raise ObservationError(f"the policy takes a dict of its sensors {names}, not an array")
    for name in readings:
        if name not in shapes:
            hint = nearest(str(name), shapes)
            raise ObservationError(f"the policy has no sensor {name!r}{hint} (it has {names})")
    if not readings:
        raise ObservationError(f"the policy was given no reading: give one of {names}")
    for name, reading in readings.items():
        shape = shapes[name]
        if len(shape) == 3:
            check_observation(reading, shape)
        elif not (
            isinstance(reading, np.ndarray)
            and reading.dtype == np.float32
            and reading.ndim in (1, 2)
            and reading.shape[-1:] == shape
        ):
            given = f"{getattr(reading, 'dtype', type(reading).__name__)} {np.shape(reading)}"
            raise ObservationError(
                f"the sensor {name} gives float32 {list(shape)} or a batch of it, not {given}"
            )
    if len({r.shape[: r.ndim - len(shapes[name])] for name, r in readings.items()}) > 1:
        raise ObservationError(
            "the sensors' readings are batches of different sizes: give N of each"
        )


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
