"""Control steps without dm_control's Python, against dm_control's own, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sibe.envs.control_steps import ControlSteps
from sibe.envs.rendering import gl

# One with several simulator steps to a control step, one with RK4, one that ends by itself.
TASKS = (
    ("cartpole", "swingup", True),
    ("cheetah", "run", True),
    ("finger", "spin", True),
    ("reacher", "easy", True),
    ("walker", "walk", True),
    ("ball_in_cup", "catch", True),
    ("lqr", "lqr_2_1", False),
)


def load(domain: str, task: str) -> Any:
    env = gl.load_suite().load(domain, task, task_kwargs={"random": 1})
    env.reset()
    return env


def state(env: Any) -> list[bytes]:
    data = env.physics.data.ptr
    names = ("qpos", "qvel", "qacc", "xpos", "xmat", "sensordata", "ctrl", "act", "time")
    return [np.asarray(getattr(data, name)).tobytes() for name in names]


@pytest.mark.parametrize(("domain", "task", "plain"), TASKS)
def test_states_and_rewards_are_dm_controls(domain: str, task: str, plain: bool) -> None:
    ours, theirs = load(domain, task), load(domain, task)
    advance, rng = ControlSteps(ours), np.random.default_rng(2)
    assert advance._plain is plain
    spec = ours.action_spec()
    low, high = np.clip(spec.minimum, -1, 1), np.clip(spec.maximum, -1, 1)
    for _ in range(40):
        control = rng.uniform(low, high, spec.shape)
        stepped = advance(control, 4)
        seen = [theirs.step(control) for _ in range(stepped.steps)]
        total = 0.0
        for step in seen:
            total += step.reward
        assert (stepped.reward, stepped.newest) == (total, seen[-1].reward)
        assert state(ours) == state(theirs)
        ended = seen[-1].last()
        assert (stepped.discount is not None) is ended
        if ended:
            break


def test_a_simulation_that_breaks_down_is_reported() -> None:
    from dm_control.rl.control import PhysicsError

    env = load("cartpole", "swingup")
    env.physics.data.qvel[:] = 1e20
    with pytest.raises(PhysicsError):
        ControlSteps(env)(np.zeros(1), 8)


def test_a_task_that_shows_its_reward_is_stepped_by_dm_control() -> None:
    env, plain = load("cartpole", "swingup"), load("cartpole", "swingup")
    env.task.visualize_reward = True
    assert ControlSteps(env)(np.ones(1), 3) == ControlSteps(plain)(np.ones(1), 3)
    assert state(env) == state(plain)


def test_a_task_with_hooks_of_its_own_keeps_them() -> None:
    env, calls = load("cartpole", "swingup"), []

    class Watched(type(env.task)):  # type: ignore[misc]
        def after_step(self, physics: Any) -> None:
            calls.append(physics.data.time)

    env.task.__class__ = Watched
    assert ControlSteps(env)(np.zeros(1), 5).steps == len(calls) == 5
