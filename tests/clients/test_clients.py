"""Libraries that nobody here wrote use the environments, the policies and the logs as they are."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import (
    FrameStackObservation,
    GrayscaleObservation,
    TransformObservation,
)
from own_envs import LENGTH, Dot
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import sibe
from sibe.logs.csv_log import read_csv

SIZE = 40  # the least that Stable-Baselines3's CNN takes is 36


def make(stack: int = 3) -> gym.Env[Any, Any]:
    return sibe.make_env("cartpole_swingup", "noise", size=SIZE, stack=stack)


def channels_first(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """As docs/howto/use_the_environments.md says."""
    height, width, channels = env.observation_space.shape or ()
    space = gym.spaces.Box(0, 255, (channels, height, width), np.uint8)
    return TransformObservation(env, lambda obs: np.moveaxis(obs, -1, 0), space)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> sibe.TrainingResult:
    return sibe.train(
        Dot,
        preset="debug",
        out=tmp_path_factory.mktemp("clients") / "run",
        threads=1,
        env_steps=4 * LENGTH,
        eval_every=LENGTH,
        eval_episodes=2,
        initial_steps=20,
        video=False,
        action_repeat=1,
    )


def small() -> dict[str, Any]:
    """Networks that learn quickly; a new dict, because a model writes into it."""
    return {"net_arch": [16], "features_extractor_kwargs": {"features_dim": 16}}


@pytest.mark.parametrize("wrap", [lambda env: env, channels_first], ids=["HWC", "CHW"])
def test_stable_baselines3_sac_learns(wrap: Any) -> None:
    options = {"buffer_size": 50, "learning_starts": 8, "batch_size": 4, "policy_kwargs": small()}
    model = SAC("CnnPolicy", wrap(make()), seed=1, device="cpu", **options)
    before = next(model.actor.parameters()).clone()
    model.learn(16)
    assert (next(model.actor.parameters()) != before).any()
    assert model.policy.observation_space.shape == (9, SIZE, SIZE)


def test_stable_baselines3_ppo_learns_in_several_environments() -> None:
    from stable_baselines3.common.env_util import make_vec_env

    envs = make_vec_env(make, n_envs=2, seed=1)
    options = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "policy_kwargs": small()}
    model = PPO("CnnPolicy", envs, seed=1, device="cpu", **options)
    before = next(model.policy.parameters()).clone()
    model.learn(32)
    assert (next(model.policy.parameters()) != before).any()
    envs.close()


def test_stable_baselines3_evaluates_our_policy(run: sibe.TrainingResult) -> None:
    env = run.policy.make_env(Dot())
    returns, lengths = evaluate_policy(
        run.policy,
        env,
        n_eval_episodes=2,
        return_episode_rewards=True,
        warn=False,
    )
    assert (len(returns), lengths) == (2, [LENGTH] * 2)
    assert (np.array(returns) < 0).all()


def test_gymnasium_runs_the_environments_in_processes() -> None:
    name = "sibe:sibe/cartpole_swingup-noise-v0"  # "sibe:" has each process import the ids
    envs: Any = gym.make_vec(name, num_envs=2, vectorization_mode="async", size=SIZE)
    obs, _ = envs.reset(seed=[3, 4])
    assert obs.shape == (2, SIZE, SIZE, 9)
    again, reward, *_ = envs.step(envs.action_space.sample())
    assert (again != obs).any() and reward.shape == (2,)
    envs.close()


def test_gymnasiums_image_wrappers_take_single_frames() -> None:
    env = FrameStackObservation(GrayscaleObservation(make(stack=1)), 4)
    assert env.reset(seed=1)[0].shape == (4, SIZE, SIZE)
    with pytest.raises((AssertionError, ValueError)):  # what the documentation warns of
        GrayscaleObservation(make(stack=3))


def test_clients_of_envpool_get_channels_first(run: sibe.TrainingResult) -> None:
    envs = gym.vector.SyncVectorEnv(
        [lambda: channels_first(run.policy.make_env(Dot()))] * 2,
    )
    obs, _ = envs.reset(seed=[3, 4])
    assert obs.dtype == np.uint8
    assert obs.shape == envs.observation_space.shape == (2, 9, 32, 32)
    actions = run.policy.act(np.moveaxis(obs, -3, -1))
    assert envs.action_space.contains(actions)
    assert envs.step(actions)[0].shape == (2, 9, 32, 32)


def test_tensorboard_reads_what_the_csv_files_hold(run: sibe.TrainingResult) -> None:
    reader = EventAccumulator(str(run.directory / "tensorboard"))
    reader.Reload()
    for table in ("train", "eval"):
        rows = read_csv(run.directory / f"{table}.csv")
        events = reader.Scalars(f"{table}/episode_reward")
        assert [event.step for event in events] == rows["frame"].tolist()
        written = np.float32(rows["episode_reward"])
        np.testing.assert_array_equal([event.value for event in events], written)
    assert len(run.evaluations.returns) == 4
