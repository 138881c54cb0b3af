"""Frame stacking: a state is the last few frames, side by side along the channel axis."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from sibe.envs.rendering.renderer import Frame


class FrameStack:
    """The last ``stack`` observations of an episode, oldest first, along their last axis.

    The first one is repeated, so that the first state has the same shape as all others.
    """

    def __init__(self, stack: int) -> None:
        self._stack = stack
        self._frames: deque[npt.NDArray[Any]] = deque(maxlen=stack)

    def start(self, frame: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Begin an episode; return its first state."""
        self._frames.extend([frame.copy()] * self._stack)
        return np.concatenate(self._frames, axis=-1)

    def append(self, frame: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Drop the oldest frame, append the newest; return the state."""
        self._frames.append(frame.copy())  # an environment may draw into one buffer
        return np.concatenate(self._frames, axis=-1)


def newest_frames(states: Frame, count: int, *, stack: int) -> Frame:
    """Return the newest ``count`` of the ``stack`` frames of states ``[..., H, W, C·stack]``."""
    channels = states.shape[-1] // stack
    return states[..., channels * (stack - count) :]


class StackFrames(
    gym.Wrapper[Frame, npt.NDArray[np.float32], Frame, npt.NDArray[np.float32]],
    gym.utils.RecordConstructorArgs,
):
    """Observe the last ``stack`` frames: [H, W, C·stack]."""

    def __init__(self, env: gym.Env[Frame, npt.NDArray[np.float32]], stack: int) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, stack=stack)  # gym.make(env.spec) needs it
        gym.Wrapper.__init__(self, env)
        self.stack = stack
        self._frames = FrameStack(stack)
        box = env.observation_space
        assert isinstance(box, gym.spaces.Box)
        height, width, channels = box.shape
        self.observation_space = gym.spaces.Box(0, 255, (height, width, channels * stack), np.uint8)

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]
        """As Gymnasium has it, with the time limit in agent steps."""
        spec = super().spec
        if spec is not None and spec.max_episode_steps is None:
            # Not given to gym.register: its limit would not follow the action repeat.
            spec.max_episode_steps = getattr(self.env, "max_episode_steps", None)
        return spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frame, dict[str, Any]]:
        """Begin an episode with ``stack`` copies of its first frame."""
        frame, info = self.env.reset(seed=seed, options=options)
        return self._frames.start(frame), info

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[Frame, Any, bool, bool, dict[str, Any]]:
        """Drop the oldest frame, append the newest."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        return self._frames.append(frame), reward, terminated, truncated, info
