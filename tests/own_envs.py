"""A small environment of nobody's: what a user of the Python interface might bring."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

LENGTH = 20


class Dot(gym.Env[npt.NDArray[np.uint8], npt.NDArray[np.float32]]):
    """A dot to be moved to the middle of a picture of 20×24 pixels."""

    observation_space = gym.spaces.Box(0, 255, (20, 24, 3), np.uint8)
    action_space = gym.spaces.Box(-2, 2, (2,), np.float32)

    def __init__(self, seed: int | None = None) -> None:
        self.given_seed, self.closed, self._time = seed, False, 0
        self._place = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._time = self.np_random.uniform(0, 20, 2), 0
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._place = np.clip(self._place + action, 0, 19)
        self._time += 1
        away = float(np.abs(self._place - 10).sum())
        return self._picture(), -away, False, self._time == LENGTH, {}

    def close(self) -> None:
        self.closed = True

    def _picture(self) -> npt.NDArray[np.uint8]:
        picture = np.zeros((20, 24, 3), np.uint8)
        row, column = self._place.astype(int)
        picture[row : row + 3, column : column + 3] = 255
        return picture
