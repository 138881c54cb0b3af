"""The tasks by name: the DeepMind Control suite, and what the paper fixes for its six.

Names are ``<domain>_<task>``, as everywhere in this field. The list is written out so that names
can be checked, completed and registered without importing a physics engine; a test compares it
with the suite. Action repeats follow the paper's Table 3, for other domains the PlaNet benchmark.
"""

from __future__ import annotations

import re
import sys
from typing import Literal, NamedTuple, get_args

from sibe.errors import UserError, nearest

_SUITE = {
    "acrobot": "swingup swingup_sparse",
    "ball_in_cup": "catch",
    "cartpole": "balance balance_sparse swingup swingup_sparse two_poles three_poles",
    "cheetah": "run",
    "dog": "stand walk trot run fetch",
    "finger": "spin turn_easy turn_hard",
    "fish": "upright swim",
    "hopper": "stand hop",
    "humanoid": "stand walk run run_pure_state",
    "humanoid_CMU": "stand walk run",
    "lqr": "lqr_2_1 lqr_6_2",
    "manipulator": "bring_ball bring_peg insert_ball insert_peg",
    "pendulum": "swingup",
    "point_mass": "easy hard",
    "quadruped": "walk run escape fetch",
    "reacher": "easy hard",
    "stacker": "stack_2 stack_4",
    "swimmer": "swimmer6 swimmer15",
    "walker": "stand walk run",
}
_REPEATS = {"cartpole": 8, "walker": 2, "finger": 2}
# The reward of a control step is 1 while the goal is met, else 0: the task itself defines success.
_GOALS = (
    "acrobot_swingup_sparse",
    "ball_in_cup_catch",
    "cartpole_balance_sparse",
    "cartpole_swingup_sparse",
    "finger_spin",
    "finger_turn_easy",
    "finger_turn_hard",
    "pendulum_swingup",
    "reacher_easy",
    "reacher_hard",
)
# Camera 0 is fixed to the arena, or to the ball, and does not follow the robot.
_CAMERAS = {"quadruped": 2, "dog_fetch": 2}

PAPER_TASKS = (
    "ball_in_cup_catch",
    "cartpole_swingup_sparse",
    "reacher_easy",
    "cartpole_swingup",
    "walker_walk",
    "cheetah_run",
)
PAPER_BACKGROUNDS = ("clean", "noise", "video")
VIDEOS = ("video", "video_random")
"""The two protocols of the natural setting: an endless loop, and a random clip per episode."""
BackgroundName = Literal["clean", "noise", "video", "video_random"]
BACKGROUNDS: tuple[BackgroundName, ...] = get_args(BackgroundName)
LOOP_FRAMES = 1000
MAX_SIZE = 4096  # pixels; software renderers crash far above it


class TaskSpec(NamedTuple):
    """A suite task and how it is usually seen and acted in."""

    name: str
    domain: str
    task: str
    camera: int
    action_repeat: int
    has_goal: bool
    """its reward is 1 while a goal is met, else 0"""


def _spec(domain: str, task: str) -> TaskSpec:
    name = f"{domain}_{task}"
    camera = _CAMERAS.get(name, _CAMERAS.get(domain, 0))
    return TaskSpec(name, domain, task, camera, _REPEATS.get(domain, 4), name in _GOALS)


SUITE_TASKS: dict[str, TaskSpec] = {
    f"{domain}_{task}": _spec(domain, task)
    for domain, tasks in _SUITE.items()
    for task in tasks.split()
}


def is_gym_id(name: str) -> bool:
    """Tell whether ``name`` is written like a Gymnasium id ("Pendulum-v1", "module:Name-v0")."""
    return ":" in name or re.search(r"-v\d+$", name) is not None


def refuse_import(task: str, *, allowed: bool) -> None:
    """Refuse a task of a file from elsewhere that would have Gymnasium import a module.

    One that is imported already, as from Python, runs nothing any more.
    """
    module, colon, _ = task.partition(":")
    if colon and not allowed and module not in sys.modules:
        raise UserError(
            f"its task {task!r} would import and run the module {module!r}: if you trust it, allow "
            f"that with --allow-import (in Python, import it first)"
        )


def task_spec(name: str) -> TaskSpec:
    """Return the suite task called ``name``, or say which names are near."""
    if name not in SUITE_TASKS:
        raise UserError(
            f"unknown task {name!r}{nearest(name, SUITE_TASKS)} "
            "(`sibe tasks` lists them; a Gymnasium id ends in -v0, -v1, …)"
        )
    return SUITE_TASKS[name]


def default_action_repeat(name: str) -> int:
    """Return the action repeat of a suite task; a Gymnasium env is stepped as it is."""
    return SUITE_TASKS[name].action_repeat if name in SUITE_TASKS else 1


def check_background(name: str) -> BackgroundName:
    """Return ``name`` if it is a background."""
    if name not in BACKGROUNDS:
        raise UserError(
            f"unknown background {name!r}{nearest(name, BACKGROUNDS)} "
            f"(there are {', '.join(BACKGROUNDS)})"
        )
    return name


def check_names(task: str, background: str) -> None:
    """Refuse a task or a background that does not exist; Gymnasium knows its own ids."""
    check_background(background)
    if not is_gym_id(task):
        task_spec(task)


def check_clips(background: str, clips: object, loop_frames: int = LOOP_FRAMES) -> None:
    """Refuse settings of the video backgrounds where they would have no effect."""
    if clips is not None and background not in VIDEOS:
        raise UserError(
            f"--clips has no effect with --background {background}: "
            "add --background video (or video_random), or leave it out"
        )
    if loop_frames != LOOP_FRAMES and background != "video":
        raise UserError(
            f"--loop-frames has no effect with --background {background}: "
            "add --background video, or leave it out"
        )


def describe_tasks() -> str:
    """Return the list of tasks as text; a star marks the paper's six."""
    lines = ["task (* in the paper)          action repeat  camera"]
    for spec in SUITE_TASKS.values():
        star = "*" if spec.name in PAPER_TASKS else " "
        lines.append(f"{star} {spec.name:30s} {spec.action_repeat:10d} {spec.camera:8d}")
    lines.append(f"backgrounds: {', '.join(BACKGROUNDS)}")
    lines.append(
        "Gymnasium envs with bounded Box actions work by their id, e.g. Pendulum-v1 (repeat 1)"
    )
    return "\n".join(lines)
