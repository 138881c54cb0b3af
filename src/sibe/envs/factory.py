"""``make_env``: the one way to get an environment, whatever is behind it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec

from sibe.envs.backgrounds.background import make_background
from sibe.envs.backgrounds.clips import SPLITS
from sibe.envs.dmc import DMCPixels
from sibe.envs.frame_stack import StackFrames
from sibe.envs.gymnasium_pixels import GymPixels
from sibe.envs.own_env import AnyEnv, refuse_own_name
from sibe.envs.registration import env_id
from sibe.envs.rendering.view import ViewConfig
from sibe.envs.sensors import PIXELS, Sensors
from sibe.envs.tasks import LOOP_FRAMES, MAX_SIZE, check_background, is_gym_id, task_spec
from sibe.errors import UserError


def make_env(
    task: str | AnyEnv,
    background: str = "clean",
    *,
    size: int | tuple[int, int] = 84,
    stack: int = 3,
    supersample: int = 1,
    action_repeat: int | None = None,
    camera: int | None = None,
    cameras: Sequence[int] = (),
    sensors: Sequence[str] = (PIXELS,),
    split: str = "train",
    clips: str | Path | None = None,
    loop_frames: int = LOOP_FRAMES,
    keep_floor: bool = False,
    noise_wrap: bool = False,
    render_mode: str = "rgb_array",
) -> gym.Env[Any, npt.NDArray[np.float32]]:
    """Make an environment of stacked uint8 frames [H, W, 3·stack] and actions in [-1, 1].

    With other sensors than the pixels of one camera, observations are dicts: ``pixels``, or
    ``pixels_<camera>`` for each of several cameras, and ``state`` float32 [S].

    Args:
        task: a DeepMind Control task ("walker_walk"), a Gymnasium id ("Pendulum-v1"), or an
            environment of your own with a bounded Box action space, which is seen through its
            image observations, MuJoCo's camera or ``render()``.
        background: "clean", "noise", "video" (a loop that plays on across episodes) or
            "video_random" (a random clip and start for each episode).
        size: of the frames: one number, or (height, width).
        stack: how many frames make a state.
        supersample: draw a MuJoCo scene and its background this many times as large each way, then
            average the blocks: an image of 42 with 2 is one of 84 seen through a coarser sensor.
        action_repeat: simulator steps per agent step; None for the task's default, which is 1 for
            a Gymnasium env.
        camera: index of the camera; None for the task's default.
        cameras: indices of several cameras, in place of one.
        sensors: "pixels", "state" or both. The state of a DeepMind Control task is proprioception:
            the robot's own joints and their velocities, nothing of objects and targets. That of a
            Gymnasium env is its own observation, which must be a vector.
        split: "train" or "eval": different seeds and, with video, different clips.
        clips: a bank made by ``sibe videos prepare``; None for generated clips.
        loop_frames: length of the loop of the "video" background.
        keep_floor: with a background, leave the floor as it is.
        noise_wrap: noise that wraps around the byte range, as in an older code family.
        render_mode: "rgb_array", which is all there is.

    ``spec.max_episode_steps`` counts agent steps. ``info["env_steps"]`` counts simulator steps;
    ``info["is_success"]`` tells whether the goal is met, in the ten suite tasks whose reward is 1
    while it is and 0 otherwise (ball_in_cup_catch, reacher, finger, pendulum and the sparse ones),
    and in a Gymnasium env that says so itself.
    """
    arguments = dict(locals())  # before there are other names
    sides = size if isinstance(size, tuple) else (size, size)
    if len(sides) != 2:
        raise UserError(f"size must be one number or (height, width), not {size!r}")
    height, width = _whole("size", *sides)
    wholes = {
        "stack": stack,
        "supersample": supersample,
        "action_repeat": action_repeat,
        "loop_frames": loop_frames,
    }
    for name, number in {**wholes, "camera": camera}.items():
        if number is not None:
            _whole(name, number)
    for name, given in {"sensors": sensors, "cameras": cameras}.items():
        if not isinstance(given, Iterable):
            raise UserError(f"{name} must be a sequence, such as a tuple, not {given!r}")
    seen = Sensors.of(
        (sensors,) if isinstance(sensors, str) else sensors, _whole("cameras", *cameras)
    )
    if camera is not None and len(cameras) > 0:
        raise UserError("give camera or cameras, not both")
    check_background(background)
    for name, count in wholes.items():
        if count is not None and count < 1:
            raise UserError(f"{name} must be at least 1, not {count}")
    for value in (height * supersample, width * supersample):
        if not 1 <= value <= MAX_SIZE:
            times = "" if supersample == 1 else " times supersample"
            raise UserError(f"size{times} must be between 1 and {MAX_SIZE}, not {value}")
    if split not in SPLITS:
        raise UserError(f"split must be train or eval, not {split!r}")
    if render_mode != "rgb_array":
        raise UserError(f"render_mode must be 'rgb_array', not {render_mode!r}")
    if isinstance(task, str):
        _check_name(task)
    elif not isinstance(task, gym.Env):
        raise UserError(f"the task must be a name or a gymnasium.Env, not {task!r}")
    painted = make_background(
        background if seen.pixels else "clean",
        height * supersample,
        width * supersample,
        split=split,
        clips=None if clips is None else Path(clips),
        loop_frames=loop_frames,
        noise_wrap=noise_wrap,
    )
    view = ViewConfig(painted, height, width, supersample, keep_floor)
    source: type[DMCPixels] | type[GymPixels] = GymPixels
    if isinstance(task, str) and not is_gym_id(task):
        source = DMCPixels
    env = source(
        task,  # type: ignore[arg-type]  # DMCPixels takes names only, and gets one
        view,
        camera=cameras[0] if len(cameras) == 1 else camera,
        sensors=seen,
        action_repeat=action_repeat,
        split=split,
    )
    if isinstance(task, str):
        # So that gym.make(env.spec) makes it again; Gymnasium ids have a slash of their own.
        name = env_id(task.replace("/", "."), background)
        env.spec = EnvSpec(name, entry_point=f"{__name__}:make_env", kwargs=arguments)
    return StackFrames(env, stack)


def _check_name(task: str) -> None:
    """Refuse a wrong name before a clip bank is opened or made."""
    refuse_own_name(task)
    if task.startswith("sibe/"):
        raise UserError(f"{task} is for gym.make; here, name the task and the background apart")
    if not is_gym_id(task):
        task_spec(task)


def _whole(name: str, *values: object) -> tuple[int, ...]:
    """Return the values as plain integers, of whatever integer type they are."""
    try:
        return tuple(operator.index(value) for value in values)  # type: ignore[arg-type]
    except TypeError as error:
        raise UserError(f"{name} must be a whole number, not {values[0]!r}") from error
