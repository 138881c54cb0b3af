"""The presets: ``paper`` (Appendix A), ``cpu`` (a smaller variant), ``debug`` (seconds).

A preset is a whole config; what the paper fixes per task (its Table 3) is filled in by name. Here
is what all agents share; each agent completes it (``with_preset`` in its own package).
"""

from __future__ import annotations

from typing import get_args

from sibe.catalogue.registry import find_agent
from sibe.config.schema import EnvConfig, Preset, RunConfig, ScheduleConfig
from sibe.envs.tasks import check_background, default_action_repeat
from sibe.errors import UserError, nearest

PRESETS: tuple[str, ...] = get_args(Preset)
SCHEDULES = {
    "paper": ScheduleConfig(),
    "cpu": ScheduleConfig(env_steps=100_000, initial_steps=500),
    "debug": ScheduleConfig(
        env_steps=3000,
        initial_steps=50,
        replay_capacity=500,
        eval_every=1000,
        eval_episodes=2,
        checkpoint_every=1000,
    ),
}


def default_preset() -> str:
    """Return paper where there is a GPU, else cpu."""
    import torch

    return "paper" if torch.cuda.is_available() else "cpu"


def preset_config(
    preset: str,
    *,
    task: str = "cartpole_swingup",
    method: str = "sibe",
    background: str = "clean",
) -> RunConfig:
    """Return the config of a preset for a task, a method and what is behind the robot.

    Args:
        preset: "paper", "cpu" or "debug".
        task: a DeepMind Control task or a Gymnasium id.
        method: what is added to SAC, or a standalone agent.
        background: "clean", "noise", "video" or "video_random".

    Examples:
        >>> config = sibe.preset_config("cpu", background="noise")
        >>> result = sibe.train(config=config, sac={"batch": 32})
    """
    if preset not in PRESETS:
        raise UserError(
            f"unknown preset {preset!r}{nearest(preset, PRESETS)} (there are {', '.join(PRESETS)})"
        )
    config = RunConfig(
        method=method,
        preset=preset,  # type: ignore[arg-type]
        env=EnvConfig(
            task=task,
            background=check_background(background),
            action_repeat=default_action_repeat(task),
        ),
        schedule=SCHEDULES[preset],
    )
    return find_agent(method).preset(config)
