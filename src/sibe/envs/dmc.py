"""Any DeepMind Control task as a Gymnasium environment of single uint8 frames, or several sensors.

Rendered once per agent step, after the action repeat. A time limit is a truncation; only a
discount of 0 is a termination. After ``reset(seed=…)`` everything that follows, physics, task and
background, is a function of that seed.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from sibe.envs.backgrounds.background import Start
from sibe.envs.control_steps import ControlSteps
from sibe.envs.proprioception import Proprioception
from sibe.envs.rendering import gl
from sibe.envs.rendering.renderer import Frame
from sibe.envs.rendering.view import View, ViewConfig, look
from sibe.envs.seeding import stream_seed
from sibe.envs.sensor_space import sensor_space, unbounded
from sibe.envs.sensors import STATE, Observation, Sensors
from sibe.envs.tasks import task_spec
from sibe.errors import UserError

TIME_LIMIT = 1000  # control steps; every suite task has this limit but lqr, which has none


class DMCPixels(gym.Env[Observation, npt.NDArray[np.float32]]):
    """A suite task seen through a camera.

    Args:
        task: name such as "cartpole_swingup".
        view: how it is shown.
        camera: index of the camera; None for the task's default.
        action_repeat: control steps per agent step; None for the task's default.
        split: "train" or "eval": the two are seeded differently.
        sensors: what is observed: pixels of one camera alone (frames), or more (dicts).
    """

    def __init__(
        self,
        task: str,
        view: ViewConfig,
        *,
        camera: int | None = None,
        action_repeat: int | None = None,
        split: str = "train",
        sensors: Sensors = Sensors(),  # noqa: B008  a tuple of constants
    ) -> None:
        spec = task_spec(task)
        suite = gl.load_suite()
        self.dm_env = suite.load(spec.domain, spec.task, task_kwargs={"random": 0})
        self.render_mode = "rgb_array"
        self.action_repeat = spec.action_repeat if action_repeat is None else action_repeat
        self.max_episode_steps = -(-TIME_LIMIT // self.action_repeat)
        seconds = self.dm_env.control_timestep() * self.action_repeat
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 1 / seconds}
        self.background = view.background
        self._has_goal = spec.has_goal
        self._split, self._view_config = split, view
        self.cameras = sensors.cameras or (spec.camera if camera is None else camera,)
        self.camera, count = self.cameras[0], self.physics.model.ncam
        for number in self.cameras:
            if not -1 <= number < count:
                raise UserError(f"{task} has cameras 0 to {count - 1} (-1 is free), not {number}")
        self._advance = ControlSteps(self.dm_env)
        limits = self.dm_env.action_spec()
        low, high = np.broadcast_arrays(limits.minimum, limits.maximum, np.empty(limits.shape))[:2]
        bounded = np.abs(high) < 1e9  # an unlimited actuator is given ±1e10: take ±1
        self._low, self._high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        self.action_space = gym.spaces.Box(-1.0, 1.0, limits.shape, np.float32)
        self.sensors = sensors
        self._feel = Proprioception(self.simulator[0], spec.domain) if sensors.state else None
        state = None if self._feel is None else unbounded(self._feel.size)
        self.observation_space = sensor_space(sensors, view.height, view.width, state)
        self.views: list[View] = []
        self._frame: Frame | None = None
        self._reset = False
        self._control_steps = 0
        self._task_seeded = False

    @property
    def physics(self) -> Any:
        """dm_control's physics: simulator state for probes and pictures."""
        return self.dm_env.physics

    @property
    def view(self) -> View | None:
        """What the first camera sees; None before anything was drawn."""
        return self.views[0] if self.views else None

    @property
    def simulator(self) -> tuple[Any, Any]:
        """MuJoCo's own model and data."""
        return self.physics.model.ptr, self.physics.data.ptr

    @property
    def task_observation(self) -> dict[str, Any]:
        """What the task itself would show of the simulator's present state, by name."""
        return dict(self.dm_env.task.get_observation(self.physics))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; with a seed, one that depends on nothing else."""
        super().reset(seed=None if seed is None else stream_seed(seed, self._split))
        if seed is not None or not self._task_seeded:
            self.dm_env.task.random.seed(int(self.np_random.integers(2**32)))
            self._task_seeded = True
        self.dm_env.reset()
        self._control_steps, self._reset = 0, True
        for view in self.views:
            view.refresh()
        if self.background is not None:
            self.background.reset(self.np_random, Start.of(seed, options))
        return self._observe(), {"env_steps": 0}

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Repeat the action, sum the rewards, render once; ``info["env_steps"]`` counts repeats.

        In a task with a goal, ``info["is_success"]`` tells whether it is met after the last repeat.
        """
        if not self._reset:
            raise gym.error.ResetNeeded("cannot call env.step() before calling env.reset()")
        unit = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        control = self._low + (unit + 1.0) / 2.0 * (self._high - self._low)
        left = TIME_LIMIT - self._control_steps
        stepped = self._advance(control, max(1, min(self.action_repeat, left)))
        self._control_steps += stepped.steps
        over = self._control_steps >= TIME_LIMIT  # which the task is not asked about then
        terminated = stepped.discount == 0.0 and not over
        truncated = over or (stepped.discount is not None and not terminated)
        info: dict[str, Any] = {"env_steps": stepped.steps}
        if self._has_goal:
            info["is_success"] = stepped.newest == 1.0
        return self._observe(), stepped.reward, terminated, truncated, info

    def render(self) -> Frame | None:
        """Return the newest frame, of the first camera."""
        if self._frame is None and self._reset:  # not a sensor: nobody has looked yet
            return self._views()[0].frame(self.np_random)
        return self._frame

    def enlarged(self, height: int, width: int) -> Frame:
        """Return the scene of the newest frame, rendered at another size; the env goes on as is."""
        assert self._reset, "reset first"
        return self._views()[0].enlarged(height, width)

    def close(self) -> None:
        """Free the renderer and dm_control's own context."""
        for view in self.views:
            view.close()
        self.views = []
        self.dm_env.close()

    def _views(self) -> list[View]:
        if not self.views:
            # Made here and not in __init__: a vector env forks after it has built one to look at.
            self.views = [View(*self.simulator, n, self._view_config) for n in self.cameras]
        return self.views

    def _observe(self) -> Observation:
        if self.sensors.bare:
            self._frame = self._views()[0].frame(self.np_random)
            return self._frame
        readings: dict[str, Any] = {}
        if self.sensors.pixels:
            readings |= look(self._views(), self.sensors, self.np_random)
        self._frame = next(iter(readings.values()), None)
        if self._feel is not None:
            readings[STATE] = self._feel(self.simulator[1])
        return readings
