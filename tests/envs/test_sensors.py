"""Several sensors: Dict observations that outside libraries take, each sensor as it is alone."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from own_envs import Dot
from stable_baselines3 import SAC
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import sibe
from sibe.config.schema import EnvConfig
from sibe.envs.dmc import DMCPixels
from sibe.envs.proprioception import ROBOT_JOINTS
from sibe.envs.sensors import SensorKind
from sibe.envs.tasks import SUITE_TASKS
from sibe.errors import UserError

BOTH: tuple[SensorKind, ...] = ("pixels", "state")


def make(task: str = "ball_in_cup_catch", background: str = "noise", **options: Any) -> Any:
    return sibe.make_env(task, background, **{"size": 40, "sensors": BOTH, **options})


def play(env: Any, steps: int = 4) -> list[Any]:
    rng = np.random.default_rng(0)
    seen = [env.reset(seed=3)[0]]
    for _ in range(steps):
        seen.append(env.step(rng.uniform(-1, 1, env.action_space.shape).astype(np.float32))[0])
    env.close()
    return seen


@pytest.mark.parametrize("background", ["clean", "noise", "video"])
def test_each_sensor_reads_as_it_does_alone(background: str) -> None:
    joined = play(make(background=background))
    pixels = play(make(background=background, sensors=("pixels",)))
    state = play(make(background=background, sensors=("state",)))
    assert pixels[0].shape == (40, 40, 9) and joined[0].keys() == {"pixels", "state"}
    assert state[0].keys() == {"state"} and state[0]["state"].shape == (4,)
    for both, one, other in zip(joined, pixels, state, strict=True):
        np.testing.assert_array_equal(both["pixels"], one)
        np.testing.assert_array_equal(both["state"], other["state"])
    assert any((a["state"] != b["state"]).any() for a, b in pairwise(joined))


@pytest.mark.parametrize("task", ["ball_in_cup_catch", "HalfCheetah-v5"])
def test_several_cameras_see_what_each_sees_alone_before_one_picture(task: str) -> None:
    repeat = 1
    both = play(make(task, "noise", sensors=("pixels",), cameras=(-1, 0), action_repeat=repeat))
    first = play(make(task, "noise", sensors=("pixels",), camera=-1, action_repeat=repeat))
    second = play(make(task, "noise", sensors=("pixels",), cameras=[0], action_repeat=repeat))
    assert set(both[0]) == {"pixels_-1", "pixels_0"}
    for together, one, other in zip(both, first, second, strict=True):
        np.testing.assert_array_equal(together["pixels_-1"], one)
        np.testing.assert_array_equal(together["pixels_0"], other)


def test_gymnasium_and_stable_baselines_find_no_fault() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for check in (check_env, sb3_check_env):
            env = gym.make("sibe/reacher_easy-noise-v0", size=40, sensors=BOTH, cameras=(0, 1))
            check(env)
            env.close()
    # As for pixels alone; and joints have no bounds, which Gymnasium remarks on.
    expected = ("different from the unwrapped", "infinity")
    messages = [str(warning.message) for warning in caught]
    assert not [text for text in messages if not any(words in text for words in expected)]


def test_stable_baselines3_learns_from_both() -> None:
    model = SAC(
        "MultiInputPolicy",
        make(),
        seed=1,
        device="cpu",
        buffer_size=50,
        learning_starts=8,
        batch_size=4,
        policy_kwargs={"net_arch": [16], "features_extractor_kwargs": {"cnn_output_dim": 16}},
    )
    before = next(model.actor.parameters()).clone()
    model.learn(16)
    assert (next(model.actor.parameters()) != before).any()


def test_gymnasium_runs_them_in_processes() -> None:
    name = "sibe:sibe/cartpole_swingup-noise-v0"
    envs: Any = gym.make_vec(
        name, num_envs=2, vectorization_mode="async", size=40, sensors=list(BOTH)
    )
    obs, _ = envs.reset(seed=[3, 4])
    assert obs["pixels"].shape == (2, 40, 40, 9) and obs["state"].shape == (2, 2)
    again, *_ = envs.step(envs.action_space.sample())
    assert (again["state"] != obs["state"]).any()
    envs.close()


def test_gymnasium_makes_it_again_from_its_spec() -> None:
    env = make(cameras=(0, 1))
    again = gym.make(env.spec)
    assert again.observation_space == env.observation_space


def proprioceptive(task: str) -> DMCPixels:
    env = make(task, "clean", sensors=("state",)).unwrapped
    assert isinstance(env, DMCPixels)
    env.reset(seed=1)
    return env


def reading(env: DMCPixels) -> np.ndarray:
    observed: np.ndarray = env._observe()["state"]
    return observed


OBJECTS = {
    "ball_in_cup_catch": ("ball_x", "ball_z"),
    "cartpole_three_poles": ("hinge_1", "hinge_2", "hinge_3"),
    "dog_fetch": ("ball_root",),
    "finger_spin": ("hinge",),
    "manipulator_bring_ball": ("ball_x", "ball_z", "ball_y"),
    "manipulator_insert_peg": ("peg_x", "peg_z", "peg_y"),
    "quadruped_fetch": ("ball_root",),
    "stacker_stack_2": ("box0_x", "box0_z", "box0_y", "box1_x", "box1_z", "box1_y"),
}


@pytest.mark.parametrize("task", OBJECTS)
def test_proprioception_does_not_feel_the_object(task: str) -> None:
    env = proprioceptive(task)
    before = reading(env)
    model, data = env.simulator
    for name in OBJECTS[task]:
        joint = model.joint(name)
        data.qpos[joint.qposadr[0] :][: 7 if len(joint.qpos0) == 7 else 1] += 0.3
        data.qvel[joint.dofadr[0]] += 5.0
    env.physics.forward()
    np.testing.assert_array_equal(reading(env), before)
    env.close()


@pytest.mark.parametrize(
    "task", ["reacher_easy", "fish_swim", "swimmer_swimmer6", "point_mass_easy", "finger_turn_easy"]
)
def test_proprioception_does_not_feel_the_target(task: str) -> None:
    env = proprioceptive(task)
    before, model = reading(env), env.simulator[0]
    moved = 0
    for positions, count, named in (
        (model.geom_pos, model.ngeom, model.geom),
        (model.site_pos, model.nsite, model.site),
    ):
        for index in range(count):
            if "target" in named(index).name:
                positions[index] += 0.2
                moved += 1
    env.physics.forward()
    assert moved
    np.testing.assert_array_equal(reading(env), before)
    env.close()


def first_tasks() -> list[str]:
    return list({spec.domain: name for name, spec in reversed(SUITE_TASKS.items())}.values())


@pytest.mark.parametrize("task", first_tasks())
def test_proprioception_of_every_domain_is_finite_and_feels_the_robot_move(task: str) -> None:
    env = proprioceptive(task)
    before = reading(env)
    assert before.dtype == np.float32 and env.observation_space["state"].shape == before.shape  # type: ignore[index]
    action = np.full(env.action_space.shape or (), 0.5, np.float32)
    after = env.step(action)[0]["state"]
    assert np.isfinite(before).all() and np.isfinite(after).all()
    assert (before != after).any()
    env.close()


def test_every_domain_says_which_joints_are_the_robots() -> None:
    assert ROBOT_JOINTS.keys() == {spec.domain for spec in SUITE_TASKS.values()}


def test_proprioception_of_the_cart_is_its_place_and_velocity() -> None:
    env = proprioceptive("cartpole_swingup")
    data = env.simulator[1]
    data.qpos[:], data.qvel[:] = (0.25, 1.0), (-0.5, 2.0)
    np.testing.assert_array_equal(reading(env), np.array([0.25, -0.5], np.float32))
    env.close()


def test_an_orientation_is_its_rotation_matrix() -> None:
    env = proprioceptive("quadruped_walk")
    data = env.simulator[1]
    env.physics.forward()
    matrix = data.xmat[env.simulator[0].joint("root").bodyid[0]]
    felt = reading(env)
    assert any(np.allclose(felt[i : i + 9], matrix, atol=1e-6) for i in range(len(felt) - 8))
    env.close()


def test_the_state_of_a_gymnasium_env_is_its_own_vector() -> None:
    env = make("Pendulum-v1", "clean", sensors=("state",))
    plain = gym.make("Pendulum-v1")
    seen, _ = env.reset(seed=3)
    inner = env.unwrapped.task_observation["observation"]
    assert seen["state"].shape == plain.observation_space.shape
    np.testing.assert_array_equal(seen["state"], inner.astype(np.float32))
    assert env.render().shape == (40, 40, 3)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"sensors": ("lidar",)}, "unknown sensor 'lidar'"),
    ({"sensors": ()}, "needs a sensor"),
    ({"sensors": ("state", "state")}, "sensor 'state' is named twice"),
    ({"cameras": (0, 0)}, "camera 0 is named twice"),
    ({"cameras": 0}, "cameras must be a sequence"),
    ({"sensors": None}, "sensors must be a sequence"),
    ({"sensors": ("state",), "cameras": (0, 1)}, "cameras see pixels"),
    ({"cameras": (0, 9)}, "has cameras 0 to 1"),
    ({"camera": 0, "cameras": (0, 1)}, "not both"),
    ({"cameras": (0.5, 1)}, "whole number"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_sensors_are_refused_in_one_line(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        make(**options)
    assert "\n" not in str(caught.value)


def test_an_env_of_images_or_of_nothing_has_no_state() -> None:
    empty = gym.make("Pendulum-v1", render_mode="rgb_array")
    empty.observation_space = gym.spaces.Box(-1, 1, (0,))
    for env in (Dot(), empty):
        with pytest.raises(UserError, match="has no state"):
            sibe.make_env(env, sensors=BOTH)


def test_state_alone_needs_no_picture_until_one_is_asked_for() -> None:
    env = sibe.make_env(gym.make("Pendulum-v1"), sensors=("state",))
    assert env.reset(seed=1)[0]["state"].shape == (3,)
    with pytest.raises(UserError, match="make it with render_mode='rgb_array'"):
        env.render()


def test_state_alone_is_enlarged_as_it_is_now() -> None:
    env: Any = sibe.make_env("Pendulum-v1", sensors=("state",), size=40)
    env.reset(seed=1)
    before = env.unwrapped.enlarged(64, 64)
    for _ in range(5):
        env.step(env.action_space.high)
    assert (before != env.unwrapped.enlarged(64, 64)).any()


def test_a_config_holds_sensors_that_go_together() -> None:
    assert EnvConfig(sensors=BOTH, cameras=(1, 0)).seen.names == ("pixels_0", "pixels_1", "state")
    assert EnvConfig(cameras=(1,)).seen.bare
    with pytest.raises(UserError, match="twice"):
        EnvConfig(sensors=("state", "state"))
    with pytest.raises(UserError, match="one of the two"):
        EnvConfig(camera=0, cameras=(0, 1))
