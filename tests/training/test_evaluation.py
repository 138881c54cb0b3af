"""Evaluation episodes: one seed, one result, whatever else is played beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from sibe.training.evaluation import MOST_ENVS, evaluate, frame_rate


class _Countdown(gym.Env[np.ndarray, np.ndarray]):
    """An episode of as many steps as its seed says; the return is the sum of the actions."""

    observation_space = gym.spaces.Box(0, 255, (2, 2, 3), np.uint8)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        assert seed is not None
        self.left = seed
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self._observe(), float(action[0]), self.left == 0, False, {"env_steps": 1}

    def render(self) -> np.ndarray:
        return self._observe()

    def enlarged(self, height: int, width: int) -> np.ndarray:
        return np.full((height, width, 3), self.left, np.uint8)

    def _observe(self) -> np.ndarray:
        return np.full((2, 2, 3), self.left, np.uint8)


class _BatchSensitive:
    """Acts by the state and, as matrix products do in their last bits, by the size of the batch.

    It remembers its episodes: each row must always be told which one it belongs to.
    """

    def reset(self) -> None:
        self.seen: dict[int, int] = {}
        self.batches: list[int] = []

    def act(
        self,
        obs: np.ndarray,
        generator: torch.Generator | None,
        episodes: Sequence[int] | None = None,
        missing: np.ndarray | None = None,
    ) -> np.ndarray:
        assert episodes is not None and list(episodes) == sorted(episodes)
        self.batches.append(len(obs))
        for episode in episodes:
            self.seen[episode] = self.seen.get(episode, 0) + 1
        values = [state.mean() + self.seen[i] for state, i in zip(obs, episodes, strict=True)]
        return np.array(values, np.float32)[:, None] + np.float32(1e-3 * len(obs))


def play(seeds: Sequence[int], **options: Any) -> tuple[list[float], list[int]]:
    policy = _BatchSensitive()
    envs = [_Countdown() for _ in range(min(len(seeds), MOST_ENVS))]
    episodes = evaluate(policy, envs, seeds, **options)
    assert [episode.env_steps for episode in episodes] == list(seeds)
    return [episode.episode_return for episode in episodes], policy.batches


def test_an_episode_does_not_depend_on_the_others() -> None:
    seeds = [5, 3, 4, 2, 6, 3, 5, 1, 2, 4, 6, 3]  # two rounds; all end at different times
    together, batches = play(seeds, fixed_batch=True)
    assert set(batches) == {MOST_ENVS}
    for count in (1, 2, 7, 10, 11):
        assert play(seeds[:count], fixed_batch=True)[0] == together[:count]
    # Without it an episode does depend on them, and evaluation in training keeps its numbers.
    assert play(seeds)[0] != together
    assert play(seeds[:3])[1] == [3, 3, 3, 2, 1]


def test_a_video_has_its_own_size_and_nothing_else_changes() -> None:
    frames: list[np.ndarray] = []
    assert play([4, 2], record=frames, video_size=10)[0] == play([4, 2])[0]
    assert [frame.shape for frame in frames] == [(10, 10, 3)] * 5
    assert [int(frame[0, 0, 0]) for frame in frames] == [4, 3, 2, 1, 0]


def test_an_env_without_a_frame_rate_is_shown_at_25() -> None:
    assert frame_rate(_Countdown()) == 25
