"""Simulator states as numbers, and observations taken apart and put together again."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from sibe.analysis.representation.latents import low_frequencies
from sibe.analysis.representation.probe_dataset import (
    ProbeDataset,
    _episode,
    collect,
    observations,
    pose_features,
)
from sibe.config.schema import EnvConfig
from sibe.envs.factory import make_env
from sibe.envs.frame_stack import newest_frames
from sibe.envs.state import RobotShare, joint_positions, simulator_state, visible_positions


class Swing:
    """Plays, and keeps every state it was shown."""

    def __init__(self, actions: int = 1) -> None:
        self.seen: list[np.ndarray] = []
        self.episodes, self.actions = 0, actions

    def reset(self) -> None:
        self.episodes += 1

    def act(self, obs: np.ndarray) -> np.ndarray:
        self.seen.append(obs)
        return np.full(self.actions, np.sin(len(self.seen) / 3), np.float32)


def world(background: str, **changes: Any) -> EnvConfig:
    return EnvConfig(**{"background": background, "size": 24, "action_repeat": 50, **changes})


def states_of(moments: ProbeDataset) -> np.ndarray:
    everyone = np.arange(len(moments.episode))
    states: np.ndarray = observations(moments, everyone, everyone)
    return states


@pytest.mark.parametrize("background", ["clean", "noise", "video"])
def test_put_together_again_they_are_what_the_env_showed(background: str, bank: Any) -> None:
    player = Swing()
    config = world(background, clips=str(bank))
    moments = collect(config, player, episodes=2, each=1000, seed=3)
    own = states_of(moments)[moments.episode == 0]
    shown = np.stack(player.seen)
    # 20 actions are 21 frames; the first whole stack is the third state, the last is not acted on.
    assert len(shown) == 20 and len(own) == 19
    np.testing.assert_array_equal(own[:-1], shown[2:])
    assert player.episodes == 2
    assert (moments.pictures is None) == (background == "clean")


def test_one_seed_gives_one_set_of_moments_and_another_another() -> None:
    first, again, other = (
        collect(world("noise"), Swing(), episodes=2, each=5, seed=seed) for seed in (1, 1, 2)
    )
    assert first.visible == ("hinge_1 cos", "hinge_1 sin", "slider")
    np.testing.assert_array_equal(states_of(first), states_of(again))
    np.testing.assert_array_equal(first.positions.values, again.positions.values)
    assert first.visible == again.visible
    assert (states_of(first) != states_of(other)).any()


class Clock(gym.Env[np.ndarray, np.ndarray]):
    """Lasts 20 steps and knows what time it is."""

    view = simulator = None
    action_space = gym.spaces.Box(-1, 1, (1,))

    @property
    def task_observation(self) -> dict[str, list[int]]:
        return {"time": [self.time]}

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.time = 0
        return np.zeros((2, 2, 9), np.uint8), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.full((2, 2, 9), self.time, np.uint8), 0.0, False, self.time == 20, {}


def test_every_moment_is_as_likely_to_be_kept() -> None:
    counts = np.zeros(21)
    rng = np.random.default_rng(0)
    for _ in range(500):
        kept = _episode(Clock(), Swing().act, 0, 3, 4, rng, lambda: 0.5)
        times = [int(moment.state.task["time 0"]) for moment in kept]
        assert len(set(times)) == 4
        for moment, time in zip(kept, times, strict=True):
            assert [int(frame[0, 0, 0]) for frame in moment.frames] == [time - 2, time - 1, time]
        counts[times] += 1
    assert not counts[:2].any()  # no whole stack yet
    expected = 500 * 4 / 19
    # χ² with 18 degrees of freedom; four of one episode exclude each other, which narrows it.
    assert ((counts[2:] - expected) ** 2 / expected).sum() < 37.2  # p = 0.005


def test_the_share_of_the_robot_is_zero_when_only_the_rail_is_in_view() -> None:
    env = make_env("cartpole_swingup", size=24)
    env.reset(seed=0)
    inner: Any = env.unwrapped
    share, found = RobotShare(inner), []
    for place in (0.0, 0.5, 2.5):
        with inner.physics.reset_context():
            inner.physics.data.qpos[:] = place, np.pi
        found.append(share())
    share.close()
    env.close()
    assert found[0] == pytest.approx(found[1], rel=0.1) and found[0] > 0.005
    assert found[2] == 0
    assert np.isnan(RobotShare(Clock())())


def test_robots_and_backgrounds_are_exchanged() -> None:
    moments = collect(world("noise", size=48), Swing(), episodes=2, each=8, seed=0)
    coverage = moments.layers[:, -1, ..., 3]
    pose = int((coverage == 255).sum(axis=(1, 2)).argmax())  # the cart may be at the edge
    mixed = observations(moments, [pose, pose], [1, 2])
    robot = moments.layers[pose, -1]
    bare, full = coverage[pose] == 0, coverage[pose] == 255
    assert moments.pictures is not None and full.any()
    for state, background in zip(mixed, (1, 2), strict=True):
        frame = newest_frames(state, 1, stack=3)
        np.testing.assert_array_equal(frame[bare], moments.pictures[background, -1][bare])
        np.testing.assert_array_equal(frame[full], robot[..., :3][full])


def test_angles_are_sines_and_cosines_and_turns_are_matrices() -> None:
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint name='f'/><geom size='1'/>"
        "<body><joint name='h' type='hinge'/><geom size='1'/>"
        "<body><joint name='s' type='slide'/><geom size='1'/>"
        "<body><joint name='b' type='ball'/><geom size='1'/></body></body></body></body>"
        "</worldbody></mujoco>"
    )
    rng = np.random.default_rng(0)
    qpos = rng.normal(size=model.nq)
    named = joint_positions(model, qpos)
    assert [named[f"f {axis}"] for axis in "xyz"] == qpos[:3].tolist()
    assert (named["h sin"], named["h cos"]) == (np.sin(qpos[7]), np.cos(qpos[7]))
    assert named["s"] == qpos[8]
    turn = np.empty(9)
    mujoco.mju_quat2Mat(turn, qpos[9:13] / np.linalg.norm(qpos[9:13]))
    found = [named[f"b r{i}{j}"] for i in range(3) for j in range(3)]
    np.testing.assert_allclose(found, turn, atol=1e-12)
    opposite = joint_positions(model, np.concatenate([qpos[:9], -qpos[9:13]]))
    assert opposite == named  # q and -q are one orientation


def test_state_is_the_simulators() -> None:
    env: Any = make_env("walker_walk", "noise", size=16, stack=1)
    try:
        env.reset(seed=0)
        env.step(np.ones(6, np.float32))
        state, physics = simulator_state(env.unwrapped), env.unwrapped.physics
        assert state.positions["right_hip sin"] == np.sin(physics.named.data.qpos["right_hip"])
        assert state.velocities["left_knee"] == physics.named.data.qvel["left_knee"]
        assert state.task["height 0"] == physics.torso_height()
        assert len(state.velocities) == physics.model.nv
    finally:
        env.close()


@pytest.mark.parametrize(
    ("task", "unseen"),
    [
        ("cartpole_swingup", set()),
        ("walker_walk", {"rootx", "rootz"}),  # its camera goes with the torso
        ("quadruped_walk", {"root x", "root y", "root z"}),
    ],
)
def test_what_the_camera_follows_cannot_be_seen(task: str, unseen: set[str]) -> None:
    env: Any = make_env(task, "clean", size=16, stack=1)
    try:
        env.reset(seed=0)
        model, data = env.unwrapped.simulator
        before = data.qpos.copy()
        names = set(joint_positions(model, before))
        assert names - visible_positions(env.unwrapped) == unseen
        np.testing.assert_array_equal(data.qpos, before)
    finally:
        env.close()


def test_an_env_without_joints_is_known_by_its_own_observation() -> None:
    config = world("clean", task="Pendulum-v1", action_repeat=10)
    moments = collect(config, Swing(), episodes=2, each=5, seed=0)
    assert moments.positions.names == moments.visible == ()
    assert moments.task.names == ("observation 0", "observation 1", "observation 2")
    features = pose_features(moments)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(features.std(axis=0), 1)


def test_coarse_content_is_that_of_the_blurred_picture() -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (3, 24, 24, 3), dtype=np.uint8)
    coarse = low_frequencies(pictures)
    gray = pictures @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(coarse[:, 0], gray.mean(axis=(1, 2)) * 24)
    # By hand: the projection on the product of two half cosine waves.
    wave = np.cos(np.pi * (np.arange(24) + 0.5) * 2 / 24) * np.sqrt(2 / 24)
    tilt = np.cos(np.pi * (np.arange(24) + 0.5) * 1 / 24) * np.sqrt(2 / 24)
    np.testing.assert_allclose(coarse[:, 2 * 4 + 1], (gray @ tilt) @ wave)
