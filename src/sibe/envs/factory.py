"""``make_env``: the one way to get an environment, whatever is behind it."""

from __future__ import annotations

import operator
from pathlib import Path

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from sibe.envs.backgrounds.background import make_background
from sibe.envs.backgrounds.clips import SPLITS
from sibe.envs.dmc import DMCPixels
from sibe.envs.frame_stack import StackFrames
from sibe.envs.gymnasium_pixels import GymPixels
from sibe.envs.rendering.renderer import Frame
from sibe.envs.rendering.view import ViewConfig
from sibe.envs.tasks import LOOP_FRAMES, MAX_SIZE, check_background, is_gym_id, task_spec
from sibe.errors import UserError


def make_env(
    task: str,
    background: str = "clean",
    *,
    size: int | tuple[int, int] = 84,
    stack: int = 3,
    supersample: int = 1,
    action_repeat: int | None = None,
    camera: int | None = None,
    split: str = "train",
    clips: str | Path | None = None,
    loop_frames: int = LOOP_FRAMES,
    keep_floor: bool = False,
    noise_wrap: bool = False,
    render_mode: str = "rgb_array",
) -> gym.Env[Frame, npt.NDArray[np.float32]]:
    """Make an environment of stacked uint8 frames [H, W, 3·stack] and actions in [-1, 1].

    Args:
        task: a DeepMind Control task ("walker_walk") or a Gymnasium id ("Pendulum-v1").
        background: "clean", "noise", "video" (a loop that plays on across episodes) or
            "video_random" (a random clip and start for each episode).
        size: of the frames: one number, or (height, width).
        stack: how many frames make a state.
        supersample: draw a MuJoCo scene and its background this many times as large each way, then
            average the blocks: an image of 42 with 2 is one of 84 seen through a coarser sensor.
        action_repeat: simulator steps per agent step; None for the task's default.
        camera: index of the camera; None for the task's default.
        split: "train" or "eval": different seeds and, with video, different clips.
        clips: a bank made by ``sibe videos prepare``; None for generated clips.
        loop_frames: length of the loop of the "video" background.
        keep_floor: with a background, leave the floor as it is.
        noise_wrap: noise that wraps around the byte range, as in an older code family.
        render_mode: "rgb_array", which is all there is.
    """
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
    if not isinstance(task, str):
        raise UserError(f"the task must be a name, not {task!r}")
    if task.startswith("sibe/"):
        raise UserError(f"{task} is for gym.make; here, name the task and the background apart")
    if not is_gym_id(task):
        task_spec(task)  # a wrong name is told before a clip bank is opened or made
    painted = make_background(
        background,
        height * supersample,
        width * supersample,
        split=split,
        clips=None if clips is None else Path(clips),
        loop_frames=loop_frames,
        noise_wrap=noise_wrap,
    )
    source = GymPixels if is_gym_id(task) else DMCPixels
    env = source(
        task,
        ViewConfig(painted, height, width, supersample, keep_floor),
        camera=camera,
        action_repeat=action_repeat,
        split=split,
    )
    return StackFrames(env, stack)


def _whole(name: str, *values: object) -> tuple[int, ...]:
    """Return the values as plain integers, of whatever integer type they are."""
    try:
        return tuple(operator.index(value) for value in values)  # type: ignore[arg-type]
    except TypeError as error:
        raise UserError(f"{name} must be a whole number, not {values[0]!r}") from error
