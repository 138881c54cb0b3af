"""Frame stacking, the one wrapper that every pixel environment shares."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from sibe.envs.rendering.renderer import Frame


class StackFrames(
    gym.Wrapper[Frame, npt.NDArray[np.float32], Frame, npt.NDArray[np.float32]],
    gym.utils.RecordConstructorArgs,
):
    """Observe the last ``stack`` frames, oldest first, along the channel axis: [H, W, C·stack].

    At reset the first frame is repeated, so the first state has the same shape as all others.
    """

    def __init__(self, env: gym.Env[Frame, npt.NDArray[np.float32]], stack: int) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, stack=stack)  # gym.make(env.spec) needs it
        gym.Wrapper.__init__(self, env)
        self.stack = stack
        box = env.observation_space
        assert isinstance(box, gym.spaces.Box)
        height, width, channels = box.shape
        self._channels = channels
        self._frames = np.zeros((height, width, channels * stack), np.uint8)
        self.observation_space = gym.spaces.Box(0, 255, self._frames.shape, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frame, dict[str, Any]]:
        """Begin an episode with ``stack`` copies of its first frame."""
        frame, info = self.env.reset(seed=seed, options=options)
        self._frames = np.tile(frame, (1, 1, self.stack))
        return self._frames.copy(), info

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[Frame, Any, bool, bool, dict[str, Any]]:
        """Drop the oldest frame, append the newest."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        self._frames = np.concatenate([self._frames[..., self._channels :], frame], axis=-1)
        return self._frames.copy(), reward, terminated, truncated, info
