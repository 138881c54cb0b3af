"""Any Gymnasium environment with a Box action space, from pixels.

The frame is the env's own image observation if it has one; a MuJoCo env is rendered by our
renderer, which also allows a background; everything else is seen through ``render()``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from PIL import Image

from sibe.envs.backgrounds.background import BACKGROUND_FRAME, Start
from sibe.envs.own_env import AnyEnv, own_name
from sibe.envs.rendering import gl
from sibe.envs.rendering.renderer import Frame
from sibe.envs.rendering.view import View, ViewConfig
from sibe.envs.seeding import stream_seed
from sibe.envs.sensor_space import sensor_space, unbounded
from sibe.envs.sensors import STATE, Observation, Sensors
from sibe.envs.tasks import default_action_repeat
from sibe.errors import UserError

_FPS = 25.0  # of an env that says nothing about time


class GymPixels(gym.Env[Observation, npt.NDArray[np.float32]]):
    """A Gymnasium environment as a source of single uint8 frames, or of several sensors.

    Args:
        source: Gymnasium id; "module:Name-v0" imports the module first. Or an environment.
        view, camera, action_repeat, split, sensors: as for ``DMCPixels``; a background needs a
            MuJoCo env, because the mask is its geometry. ``state`` is the env's own vector.
    """

    def __init__(
        self,
        source: str | AnyEnv,
        view: ViewConfig,
        *,
        camera: int | None = None,
        action_repeat: int | None = None,
        split: str = "train",
        sensors: Sensors = Sensors(),  # noqa: B008  a tuple of constants
    ) -> None:
        self.gym_env = _make(source) if isinstance(source, str) else source
        name = source if isinstance(source, str) else own_name(source)
        self.render_mode = "rgb_array"
        repeat = default_action_repeat(name) if action_repeat is None else action_repeat
        self.action_repeat = repeat
        limit = self.gym_env.spec.max_episode_steps if self.gym_env.spec else None
        self.max_episode_steps = None if limit is None else -(-limit // repeat)
        fps = _steps_per_second(self.gym_env) / repeat
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps}
        self.background = view.background
        self._split, self._view_config = split, view
        chosen = sensors.cameras or (camera,)
        self.cameras = tuple(self._choose_camera(name, number) for number in chosen)
        self.camera = self.cameras[0]
        box = self.gym_env.action_space
        if not isinstance(box, gym.spaces.Box) or not np.isfinite([box.low, box.high]).all():
            raise UserError(f"{name} has the action space {box}: a bounded Box is needed")
        self._low, self._high = box.low.astype(np.float64), box.high.astype(np.float64)
        self._whole = np.issubdtype(box.dtype, np.integer)
        if self._whole:  # each number gets as much of -1 … 1 as any other
            self._low, self._high = self._low - 0.5, self._high + 0.5
        self.action_space = gym.spaces.Box(-1.0, 1.0, (int(np.prod(box.shape)),), np.float32)
        self.sensors = sensors
        state = _vector_space(name, self.gym_env) if sensors.state else None
        self.observation_space = sensor_space(sensors, view.height, view.width, state)
        self.views: list[View] = []
        self._viewed: tuple[Any, Any] = None, None  # model and data of the views
        self._reset = False
        self._observation: Any = None
        self._seen: Frame | None = None  # before it is resized
        self._frame: Frame | None = None
        self._look = self._choose_view(name)

    @property
    def view(self) -> View | None:
        """What the first camera sees; None if nothing was drawn, or without MuJoCo."""
        return self.views[0] if self.views else None

    @property
    def simulator(self) -> tuple[Any, Any] | None:
        """MuJoCo's own model and data; None if the env is of another kind."""
        inner: Any = self.gym_env.unwrapped
        return (inner.model, inner.data) if _is_mujoco(inner) else None

    @property
    def task_observation(self) -> dict[str, Any]:
        """The env's newest observation by name, if it is a vector."""
        vector = isinstance(self._observation, np.ndarray) and self._observation.ndim == 1
        return {"observation": self._observation} if vector else {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; with a seed, one that depends on nothing else, if the env complies."""
        mixed = None if seed is None else stream_seed(seed, self._split)
        # The env seeds its own generator with ``mixed``; the background must not follow from that.
        super().reset(seed=None if mixed is None else stream_seed(mixed, "background"))
        theirs = {key: value for key, value in (options or {}).items() if key != BACKGROUND_FRAME}
        observation, info = self.gym_env.reset(seed=mixed, options=theirs or None)
        self._reset = True
        for view in self.views:
            view.refresh()
        if self.background is not None:
            self.background.reset(self.np_random, Start.of(seed, options))
        return self._observe(observation), {**info, "env_steps": 0}

    def step(
        self, action: npt.NDArray[np.float32]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Repeat the action, sum the rewards, look once."""
        if not self._reset:
            raise gym.error.ResetNeeded("cannot call env.step() before calling env.reset()")
        unit = np.clip(np.asarray(action, np.float64), -1.0, 1.0).reshape(self._low.shape)
        control = self._low + (unit + 1.0) / 2.0 * (self._high - self._low)
        if self._whole:
            control = np.clip(np.rint(control), self._low + 0.5, self._high - 0.5)
        control = control.astype(self.gym_env.action_space.dtype)
        reward, env_steps = 0.0, 0
        for _ in range(self.action_repeat):
            observation, gain, terminated, truncated, info = self.gym_env.step(control)
            reward += float(gain)
            env_steps += info.get("env_steps", 1)  # it may repeat actions itself
            if terminated or truncated:
                break
        seen = self._observe(observation)
        return seen, reward, terminated, truncated, {**info, "env_steps": env_steps}

    def render(self) -> Frame | None:
        """Return the newest frame, of the first camera."""
        if self._frame is None and self._reset:  # not a sensor: nobody has looked yet
            return self._see(self._observation)
        return self._frame

    def enlarged(self, height: int, width: int) -> Frame:
        """Return the scene of the newest frame at another size; the env goes on as it is.

        A MuJoCo env is rendered at that size; of others, what they show is resized.
        """
        if self.view is None and self._seen is None:
            self.render()
        if self.views:
            return self._current_views()[0].enlarged(height, width)
        assert self._seen is not None, "reset first"
        image = Image.fromarray(self._seen)
        return np.array(image.resize((width, height), Image.Resampling.BICUBIC))

    def close(self) -> None:
        """Close the env and the renderer."""
        for view in self.views:
            view.close()
        self.views, self._viewed = [], (None, None)
        self.gym_env.close()

    def _choose_camera(self, name: str, camera: int | None) -> int:
        """Return the index of a camera of a MuJoCo env; others have no choice."""
        cameras = getattr(getattr(self.gym_env.unwrapped, "model", None), "ncam", None)
        if camera is None:
            return 0 if cameras else -1
        if cameras is None or not -1 <= camera < cameras:
            have = "no cameras to choose from" if not cameras else f"cameras 0 to {cameras - 1}"
            raise UserError(f"{name} has {have}: camera {camera} does not exist")
        return camera

    def _choose_view(self, name: str) -> Callable[[Any], Frame]:
        space, inner = self.gym_env.observation_space, self.gym_env.unwrapped
        mujoco_env = _is_mujoco(inner)
        if self.background is not None and not mujoco_env:
            raise UserError(
                f"{name} can only be seen clean: backgrounds need the geometry of a MuJoCo env"
            )
        pixels = isinstance(space, gym.spaces.Box) and space.dtype == np.uint8
        shape = space.shape or () if pixels else ()
        if len(shape) in (2, 3) and self.background is None and not self.sensors.cameras:
            if len(shape) == 3 and shape[-1] not in (1, 3, 4) and shape[0] not in (1, 3):
                raise UserError(
                    f"{name} observes {shape[-1]} channels: single frames, gray, RGB or RGBA, are "
                    "needed, and stacked here (make it with stack=1)"
                )
            return _as_rgb
        if mujoco_env:
            return lambda _: self._current_views()[0].frame(self.np_random)
        if self.sensors.pixels:
            self._check_render_mode(name)
        return lambda _: _as_rgb(self._rendered(name))

    def _check_render_mode(self, name: str) -> None:
        if self.gym_env.render_mode != "rgb_array":
            raise UserError(f"{name} is seen by render(): make it with render_mode='rgb_array'")

    def _rendered(self, name: str) -> Any:
        self._check_render_mode(name)
        try:
            return self.gym_env.render()
        except gym.error.DependencyNotInstalled as error:
            raise UserError(f"{name} cannot be drawn: {error}") from error

    def _current_views(self) -> list[View]:
        """Return the views of what a MuJoCo env simulates; it may replace its model at reset."""
        inner: Any = self.gym_env.unwrapped
        simulator = inner.model, inner.data
        if not all(new is old for new, old in zip(simulator, self._viewed, strict=True)):
            for view in self.views:
                view.close()
            self.views = [View(*simulator, camera, self._view_config) for camera in self.cameras]
            self._viewed = simulator
        return self.views

    def _observe(self, observation: Any) -> Observation:
        self._observation = observation
        if self.sensors.bare:
            self._frame = self._see(observation)
            return self._frame
        readings: dict[str, Any] = {}
        self._frame = self._seen = None
        if self.sensors.pixels:
            first, *others = self.sensors.views
            readings[first] = self._frame = self._see(observation)
            for name, view in zip(others, self.views[1:], strict=bool(others)):
                readings[name] = view.frame(self.np_random, self.views[0].picture)
        if self.sensors.state:
            readings[STATE] = np.asarray(observation, np.float32)
        return readings

    def _see(self, observation: Any) -> Frame:
        self._seen = frame = self._look(observation)
        height, width = self._view_config.height, self._view_config.width
        if frame.shape[:2] != (height, width):
            image = Image.fromarray(frame).resize((width, height), Image.Resampling.BOX)
            frame = np.asarray(image)
        return frame


def _vector_space(name: str, env: AnyEnv) -> gym.spaces.Box:
    """Return the space of the env's own observation, which must be a vector."""
    box = env.observation_space
    if not isinstance(box, gym.spaces.Box) or len(box.shape) != 1 or not box.shape[0]:
        raise UserError(
            f"{name} has no state: it observes {box}, not a vector; leave the sensor state out"
        )
    return unbounded(box.shape[0])


def _is_mujoco(inner: Any) -> bool:
    return hasattr(inner, "model") and hasattr(inner.model, "geom_bodyid")


def _steps_per_second(env: gym.Env[Any, Any]) -> float:
    """Return the pace of real time: by the simulator's step, else as fast as the env is to play."""
    step = getattr(env.unwrapped, "dt", None)
    if isinstance(step, float) and step > 0:
        return 1 / step
    return float(env.metadata.get("render_fps") or _FPS)


def _make(name: str) -> gym.Env[Any, Any]:
    gl.select_backend()  # before a MuJoCo env imports MuJoCo
    try:
        return gym.make(name, render_mode="rgb_array")
    except (gym.error.Error, ImportError) as error:
        reason, package = " ".join(str(error).split()), getattr(error, "name", None)
        fix = f": pip install {package}" if package else ""
        raise UserError(f"Gymnasium cannot make {name!r}: {reason}{fix}") from error
    except TypeError as error:
        raise UserError(f"{name} does not take render_mode='rgb_array': {error}") from error


def _as_rgb(image: Any) -> Frame:
    """Return an image of one or three channels, in either order, as uint8 [H, W, 3]."""
    frame = np.asarray(image)
    if frame.ndim == 2:
        frame = frame[..., None]
    if frame.ndim != 3:
        raise UserError(f"the env renders an array of shape {frame.shape}, not an image")
    if frame.shape[0] in (1, 3) and frame.shape[2] not in (1, 3):
        frame = frame.transpose(1, 2, 0)
    if frame.shape[2] not in (1, 3, 4):
        raise UserError(f"the env shows {frame.shape[2]} channels; gray, RGB or RGBA is needed")
    if frame.shape[2] == 1:
        frame = frame.repeat(3, axis=2)
    return np.ascontiguousarray(frame[..., :3], np.uint8)
