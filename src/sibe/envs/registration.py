"""Gymnasium ids: ``sibe/<task>-<clean|noise|video>-v0`` for every task of the suite."""

from __future__ import annotations

import gymnasium as gym

from sibe.envs.tasks import BACKGROUNDS, SUITE_TASKS


def env_id(task: str, background: str) -> str:
    """Return the Gymnasium id of a suite task in a visual setting."""
    return f"sibe/{task}-{background}-v0"


def register_all() -> None:
    """Register every task in every visual setting; nothing heavy is imported."""
    for task in SUITE_TASKS:
        for background in BACKGROUNDS:
            if env_id(task, background) not in gym.registry:
                gym.register(
                    env_id(task, background),
                    entry_point="sibe.envs.factory:make_env",
                    kwargs={"task": task, "background": background},
                )
