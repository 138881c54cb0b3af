"""The observation space of a set of sensors."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from sibe.envs.sensors import STATE, Sensors


def sensor_space(
    sensors: Sensors, height: int, width: int, state: gym.spaces.Box | None
) -> gym.Space[Any]:
    """Return the space of single frames [H, W, 3] and a state: a Box, or a Dict by sensor."""
    frame = gym.spaces.Box(0, 255, (height, width, 3), np.uint8)
    if sensors.bare:
        return frame
    spaces: dict[str, gym.Space[Any]] = dict.fromkeys(sensors.views, frame)
    if state is not None:
        spaces[STATE] = state
    return gym.spaces.Dict({name: spaces[name] for name in sensors.names})


def unbounded(size: int) -> gym.spaces.Box:
    """Return the space of ``size`` real numbers."""
    return gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)


def state_size(space: gym.Space[Any]) -> int:
    """Return how many numbers the sensor ``state`` has; 0 if there is none."""
    if not isinstance(space, gym.spaces.Dict) or STATE not in space.spaces:
        return 0
    shape = space[STATE].shape
    assert shape is not None
    return shape[0]


def reading_shapes(space: gym.Space[Any]) -> Any:
    """Return the shape of a reading, or shapes by sensor."""
    if isinstance(space, gym.spaces.Dict):
        return {name: one.shape for name, one in space.items()}
    return space.shape
