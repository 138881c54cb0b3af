"""The collect step: choose an action, step the environment, store the frame.

Each episode depends only on its number: it is reset with a seed made from it. The replay is
given single frames; the stack that the policy sees is kept here.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from sibe.agents.protocol import Policy
from sibe.envs.backgrounds.background import BACKGROUND_FRAME
from sibe.envs.frame_stack import make_stack
from sibe.envs.seeding import stream_seed
from sibe.envs.sensors import Observation, each
from sibe.errors import UserError
from sibe.replay.episodes import Episode
from sibe.training.seeding import numpy_state, numpy_stream, restore_numpy, torch_stream

_COUNTERS = ("env_step", "agent_step", "episode")


class ReplayWriter(Protocol):
    """Where a collector stores what it sees."""

    def start(self, _frame: Any, /) -> None:
        """Begin an episode."""

    def add(
        self, _action: Any, _reward: float, _discount: float, _frame: Any, /, *, last: bool
    ) -> Episode | None:
        """Store one agent step; may return the episode that ends with it."""


class FinishedEpisode(NamedTuple):
    """A training episode that has ended."""

    number: int
    """counted from 0"""
    episode_return: float
    env_steps: int
    stored: Episode | None
    """what the replay returned of it"""


class NonFiniteAction(UserError):
    """The policy chose an action that is not a number."""


class Collector:
    """Plays training episodes, one agent step at a time.

    Args:
        env: observes single frames ``[H, W, C]`` (or vectors, or both by sensor) and counts
            ``info["env_steps"]``.
        policy: chooses the actions after the first ``initial_steps``.
        replay: stores the frames.
        stack: how many frames the policy sees.
        seed: of the run.
        initial_steps: agent steps with uniformly random actions.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        policy: Policy,
        replay: ReplayWriter,
        *,
        stack: int,
        seed: int,
        initial_steps: int,
    ) -> None:
        self.env, self.policy, self.replay = env, policy, replay
        self.env_step = self.agent_step = 0
        self.episode = 0  # finished episodes
        self._seed, self._initial_steps = seed, initial_steps
        self._random_rng = numpy_stream(seed, "random actions")
        self._act_generator = torch_stream(seed, "exploration")
        self._frames: Any = make_stack(env.observation_space, stack)
        self._state: Observation | None = None  # None between episodes
        self._return, self._env_steps = 0.0, 0

    def step(self) -> FinishedEpisode | None:
        """Make one agent step, after a reset if none is running; return the episode if it ended."""
        state = self._begin() if self._state is None else self._state
        action = self._choose(state)
        frame, reward, terminated, truncated, info = self.env.step(action)
        last = terminated or truncated
        stored = self.replay.add(action, float(reward), float(not terminated), frame, last=last)
        self._state = self._frames.append(frame)
        self._return += float(reward)
        self._env_steps += info["env_steps"]
        self.agent_step += 1
        self.env_step += info["env_steps"]
        if not last:
            return None
        self._state = None
        self.episode += 1
        return FinishedEpisode(self.episode - 1, self._return, self._env_steps, stored)

    def _begin(self) -> Observation:
        # Each episode before this one showed a first image, and one more after each step.
        shown = self.agent_step + self.episode
        frame, _ = self.env.reset(
            seed=stream_seed(self._seed, "train", self.episode), options={BACKGROUND_FRAME: shown}
        )
        self.replay.start(frame)
        self.policy.reset()
        self._return, self._env_steps = 0.0, 0
        return self._frames.start(frame)

    def _choose(self, state: Observation) -> npt.NDArray[np.float32]:
        if self.agent_step < self._initial_steps:
            return self._random_rng.uniform(-1, 1, self.env.action_space.shape).astype(np.float32)
        batch = each(lambda part: part[None], state)
        action: npt.NDArray[np.float32] = self.policy.act(batch, self._act_generator)[0]
        if not np.isfinite(action).all():
            raise NonFiniteAction(f"the action became non-finite at env_step {self.env_step}")
        return action

    def state(self) -> dict[str, Any]:
        """Return what a continuation after a finished episode needs; fit for ``torch.save``."""
        return {
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "random_rng": numpy_state(self._random_rng),
            "act_generator": self._act_generator.get_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        restore_numpy(self._random_rng, state["random_rng"])
        self._act_generator.set_state(state["act_generator"])
