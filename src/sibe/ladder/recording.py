"""An episode as what brings it about again: its seed and its actions."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from sibe.envs.backgrounds.background import BACKGROUND_FRAME

Floats = npt.NDArray[np.float32]


class Recording(NamedTuple):
    """One episode of T agent steps, and what was seen of it."""

    seed: int
    """what the env was reset to"""
    shown: int
    """how many background images the episodes before it showed"""
    actions: Floats
    """``[T, A]``"""
    rewards: tuple[float, ...]
    """``[T]``"""
    states: Floats
    """``[T + 1, K]``, the task's own observation"""
    terminated: bool
    """whether the last step was a true termination"""


class RecordEpisodes(gym.Wrapper[Floats, Floats, Floats, Floats]):
    """Record every episode that is played to its end.

    Args:
        env: observes the task's own vector; is reset with a seed and a background frame.
    """

    def __init__(self, env: gym.Env[Floats, Floats]) -> None:
        super().__init__(env)
        self.recordings: list[Recording] = []
        self._seed = self._shown = 0
        self._actions: list[Floats] = []
        self._rewards: list[float] = []
        self._states: list[Floats] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode and its recording."""
        assert seed is not None and options is not None
        state, info = self.env.reset(seed=seed, options=options)
        self._seed, self._shown = seed, options[BACKGROUND_FRAME]
        self._actions, self._rewards, self._states = [], [], [state]
        return state, info

    def step(self, action: Floats) -> tuple[Floats, Any, bool, bool, dict[str, Any]]:
        """Act and record; at the end, add the recording."""
        state, reward, terminated, truncated, info = self.env.step(action)
        self._actions.append(action)
        self._rewards.append(float(reward))
        self._states.append(state)
        if terminated or truncated:
            actions, states = np.stack(self._actions), np.stack(self._states)
            rewards = tuple(self._rewards)
            self.recordings.append(
                Recording(self._seed, self._shown, actions, rewards, states, terminated)
            )
        return state, reward, terminated, truncated, info
