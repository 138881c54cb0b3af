"""Environments whose observation is the task's own vector instead of an image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from sibe.config.schema import EnvConfig
from sibe.errors import UserError
from sibe.training.environment import make_configured_env
from sibe.training.seeding import numpy_stream

Vector = npt.NDArray[np.float32]

_SIZE = 16  # of the frames, which is not used


def task_vector(env: gym.Env[Any, Any]) -> Vector:
    """Return the task's own observation at the present state, flattened: ``[K]``."""
    inner: Any = env.unwrapped
    parts = [np.ravel(values) for values in inner.task_observation.values()]
    vector: Vector = np.concatenate([np.empty(0), *parts]).astype(np.float32)
    return vector


def task_quantities(config: EnvConfig) -> tuple[str, ...]:
    """Return the names of the K numbers of the task's observation; a task without is refused."""
    env = make_configured_env(_unseen(config), split="train")
    try:
        env.reset(seed=0)
        inner: Any = env.unwrapped
        names = tuple(
            f"{name} {index}" if np.size(values) > 1 else name
            for name, values in inner.task_observation.items()
            for index in range(np.size(values))
        )
    finally:
        env.close()
    if not names:
        raise UserError(
            f"{config.task} has no vector observation, which the ladder puts in the place of the "
            "image: choose a DeepMind Control task or a Gymnasium env that observes a vector"
        )
    return names


class StateObservation(gym.Wrapper[Vector, npt.NDArray[np.float32], Any, npt.NDArray[np.float32]]):
    """Observe ``task_vector`` ``[K]``, with a Gaussian error of standard deviation ``error [K]``.

    The errors of an episode are a function of its reset seed, as everything else is.
    """

    def __init__(self, env: gym.Env[Any, Any], error: npt.NDArray[np.float64]) -> None:
        super().__init__(env)
        self._error = error
        self._rng = numpy_stream(0, "observation error")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Vector, dict[str, Any]]:
        """Begin an episode."""
        _, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._rng = numpy_stream(seed, "observation error")
        return self._observed(), info

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[Vector, Any, bool, bool, dict[str, Any]]:
        """Act, and observe the vector."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._observed(), reward, terminated, truncated, info

    def _observed(self) -> Vector:
        exact = task_vector(self.env)
        if not self._error.any():
            return exact
        error = self._error * self._rng.standard_normal(exact.shape)
        return (exact + error).astype(np.float32)


def make_state_env(
    config: EnvConfig, *, split: str, error: npt.NDArray[np.float64]
) -> StateObservation:
    """Return the task as a vector; ``error [K]`` is 0 for the exact one."""
    return StateObservation(make_configured_env(_unseen(config), split=split), error)


def _unseen(config: EnvConfig) -> EnvConfig:
    """Return the same physics with the cheapest image."""
    return replace(config, background="clean", clips=None, size=_SIZE, supersample=1, stack=1)
