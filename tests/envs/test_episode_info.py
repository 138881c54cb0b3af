"""What an env says about its episodes: order, time limit, success, and the pace of real time."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from test_envs import actions

import sibe
from sibe.catalogue.presets import preset_config
from sibe.envs.tasks import SUITE_TASKS


@pytest.mark.parametrize("task", ["cartpole_swingup", "Pendulum-v1"])
def test_a_step_before_the_first_reset_is_refused(task: str) -> None:
    env = sibe.make_env(task, size=8)
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        env.step(np.zeros(1, np.float32))
    env.reset(seed=0)
    env.step(np.zeros(1, np.float32))


def limit(env: gym.Env[Any, Any]) -> int | None:
    assert env.spec is not None
    return env.spec.max_episode_steps


def test_the_spec_has_the_time_limit_in_agent_steps() -> None:
    name = "sibe/cartpole_swingup-noise-v0"
    assert limit(gym.make(name)) == 125
    assert limit(gym.make(name, max_episode_steps=7)) == 7
    assert limit(sibe.make_env("walker_walk")) == 500
    assert limit(sibe.make_env("Pendulum-v1")) == 200  # Gymnasium's own limit
    assert limit(sibe.make_env("Pendulum-v1", action_repeat=3)) == 67
    one = gym.make(name, size=8, action_repeat=300)
    two = gym.make(one.spec)  # type: ignore[arg-type]
    for env in (one, two):
        assert limit(env) == 4
        env.reset(seed=0)
        assert [env.step(action)[3] for action in actions(env, 4)] == [False] * 3 + [True]


@pytest.mark.parametrize("task", ["pendulum_swingup", "reacher_hard", "finger_spin"])
def test_success_is_what_the_task_rewards(task: str) -> None:
    env = sibe.make_env(task, size=8, stack=1, action_repeat=1)
    assert "is_success" not in env.reset(seed=0)[1]
    for action in actions(env, 3):
        _, reward, _, _, info = env.step(action)
        assert reward in (0.0, 1.0)
        assert info["is_success"] is (reward == 1.0)


def test_success_is_that_of_the_last_repeat() -> None:
    env = sibe.make_env("pendulum_swingup", size=8, action_repeat=2)
    env.reset(seed=0)
    physics = env.get_wrapper_attr("physics")
    found = []
    for angle, speed in ((0.0, 0.0), (0.0, 5.0), (np.pi, 0.0)):  # upright, falling, hanging
        with physics.reset_context():
            physics.data.qpos[:], physics.data.qvel[:] = angle, speed
        _, reward, _, _, info = env.step(np.zeros(1, np.float32))
        found.append((reward, info["is_success"]))
    assert found == [(2.0, True), (1.0, False), (0.0, False)]


def test_a_task_without_a_goal_has_no_success() -> None:
    env = sibe.make_env("point_mass_easy", size=8)
    env.reset(seed=0)
    assert "is_success" not in env.step(actions(env, 1)[0])[4]
    assert sum(spec.has_goal for spec in SUITE_TASKS.values()) == 10


class _Goal(gym.Env[np.ndarray, np.ndarray]):
    """Observes an image and says whether it succeeded."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode: str) -> None:
        self.render_mode = render_mode

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros((8, 8, 3), np.uint8), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros((8, 8, 3), np.uint8), 0.5, False, False, {"is_success": action[0] > 0}


def test_the_success_of_a_gymnasium_env_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    creator: Any = _Goal
    spec = EnvSpec("Goal-v0", entry_point=creator, disable_env_checker=True)
    monkeypatch.setitem(gym.registry, "Goal-v0", spec)
    env = sibe.make_env("Goal-v0", size=8)
    env.reset(seed=0)
    for sign in (1, -1):
        assert env.step(np.array([sign], np.float32))[4]["is_success"] == (sign > 0)
    assert limit(env) is None
    assert env.metadata["render_fps"] == 25  # it says nothing about time


@pytest.mark.parametrize(
    ("task", "repeat", "fps"),
    [
        ("cartpole_swingup", None, 12.5),
        ("walker_walk", None, 20),
        ("walker_walk", 1, 40),
        ("Pendulum-v1", None, 20),  # dt is 0.05, whatever its metadata says
        ("MountainCarContinuous-v0", 2, 15),
    ],
)
def test_frames_per_second_are_those_of_real_time(
    task: str, repeat: int | None, fps: float
) -> None:
    env = sibe.make_env(task, action_repeat=repeat)
    assert env.metadata["render_fps"] == pytest.approx(fps)


@pytest.mark.parametrize("task", ["Pendulum-v1", "cheetah_run", "cartpole_swingup"])
def test_training_and_make_env_repeat_actions_alike(task: str) -> None:
    repeat = sibe.make_env(task).get_wrapper_attr("action_repeat")
    assert preset_config("cpu", task=task).env.action_repeat == repeat
    assert repeat == {"Pendulum-v1": 1, "cheetah_run": 4, "cartpole_swingup": 8}[task]
