"""Frame stacking: a state is the last few frames, side by side along the channel axis."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from sibe.envs.sensors import Observation
from sibe.kernels import layers

Readings = dict[str, npt.NDArray[Any]]


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
        return _side_by_side(self._frames)

    def append(self, frame: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Drop the oldest frame, append the newest; return the state."""
        self._frames.append(frame.copy())  # an environment may draw into one buffer
        return _side_by_side(self._frames)


def _side_by_side(frames: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return observations along their last axis."""
    first = frames[0]
    if first.dtype == np.uint8 and first.shape[2:] == (3,) and layers.available():
        return layers.side_by_side(frames)
    return np.concatenate(frames, axis=-1)


class SensorStack:
    """The state of several sensors: the last ``stack`` frames of each camera, the newest vector."""

    def __init__(self, stack: int) -> None:
        self._stack = stack
        self._frames: dict[str, FrameStack] = {}

    def start(self, readings: Readings) -> Readings:
        """Begin an episode; return its first state."""
        pictures = [name for name, reading in readings.items() if reading.ndim == 3]
        self._frames = {name: FrameStack(self._stack) for name in pictures}
        return {
            name: self._frames[name].start(reading) if name in self._frames else reading.copy()
            for name, reading in readings.items()
        }

    def append(self, readings: Readings) -> Readings:
        """Append the newest frames; return the state."""
        return {
            name: self._frames[name].append(reading) if name in self._frames else reading.copy()
            for name, reading in readings.items()
        }


def make_stack(space: gym.Space[Any], stack: int) -> FrameStack | SensorStack:
    """Return what makes states of the observations in ``space``."""
    return SensorStack(stack) if isinstance(space, gym.spaces.Dict) else FrameStack(stack)


def newest_frames(states: Observation, count: int, *, stack: int) -> Observation:
    """Return the newest ``count`` of the ``stack`` frames of states ``[..., H, W, C·stack]``.

    Of states by sensor, those of each camera; vectors stay as they are.
    """
    if isinstance(states, dict):
        return {
            name: newest_frames(part, count, stack=stack) if part.dtype == np.uint8 else part
            for name, part in states.items()
        }
    channels = states.shape[-1] // stack
    return states[..., channels * (stack - count) :]


class StackFrames(
    gym.Wrapper[Observation, npt.NDArray[np.float32], Observation, npt.NDArray[np.float32]],
    gym.utils.RecordConstructorArgs,
):
    """Observe the last ``stack`` frames, [H, W, C·stack], of each camera."""

    def __init__(self, env: gym.Env[Observation, npt.NDArray[np.float32]], stack: int) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, stack=stack)  # gym.make(env.spec) needs it
        gym.Wrapper.__init__(self, env)
        self.stack = stack
        self._frames: Any = make_stack(env.observation_space, stack)
        self.observation_space = _stacked_space(env.observation_space, stack)

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
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode with ``stack`` copies of its first frame."""
        frame, info = self.env.reset(seed=seed, options=options)
        return self._frames.start(frame), info

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Drop the oldest frame, append the newest."""
        frame, reward, terminated, truncated, info = self.env.step(action)
        return self._frames.append(frame), reward, terminated, truncated, info


def _stacked_space(space: gym.Space[Any], stack: int) -> gym.Space[Any]:
    if isinstance(space, gym.spaces.Dict):
        return gym.spaces.Dict({name: _stacked_space(one, stack) for name, one in space.items()})
    assert isinstance(space, gym.spaces.Box)
    if len(space.shape) == 1:
        return space
    height, width, channels = space.shape
    return gym.spaces.Box(0, 255, (height, width, channels * stack), np.uint8)
