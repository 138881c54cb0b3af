"""The rewards that do without dm_control's Python, against dm_control's own, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sibe.envs.rendering import gl
from sibe.envs.rewards import reward_function


def load(task: str) -> Any:
    return gl.load_suite().load("cartpole", task, task_kwargs={"random": 1})


@pytest.mark.parametrize("task", ["swingup", "balance"])
def test_one_pole_has_dm_controls_reward_in_every_state_of_play(task: str) -> None:
    env, rng = load(task), np.random.default_rng(1)
    reward, seen = reward_function(env), set()
    assert "_one_pole" in reward.__qualname__
    for _ in range(4):
        env.reset()
        for _ in range(1000):
            control = rng.uniform(-1.2, 1.2, 1)  # above 1 the effort's term is 0
            expected = env.step(np.clip(control, -1, 1)).reward
            assert reward() == expected
            seen.add(expected)
    assert len(seen) > 3000


def test_one_pole_has_dm_controls_reward_anywhere() -> None:
    env, rng = load("swingup"), np.random.default_rng(2)
    env.reset()
    reward, physics = reward_function(env), env.physics
    for scale in (0.0, 1e-8, 1e-3, 1.0, 10.0, 1e3):
        for _ in range(300):
            with physics.reset_context():
                physics.data.qpos[:] = scale * rng.standard_normal(2)
                physics.data.qvel[:] = scale * rng.standard_normal(2)
            physics.data.ctrl[:] = scale * rng.standard_normal(1)
            assert reward() == env.task.get_reward(physics)


@pytest.mark.parametrize("task", ["swingup_sparse", "two_poles"])
def test_other_tasks_are_asked_for_their_reward(task: str) -> None:
    env = load(task)
    env.reset()
    env.step(np.array([0.5]))
    assert reward_function(env)() == float(env.task.get_reward(env.physics))
