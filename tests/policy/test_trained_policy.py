"""A policy refuses what it was not trained on, in one line, and speaks Stable-Baselines3."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sibe.catalogue.build import build_agent
from sibe.catalogue.presets import preset_config
from sibe.errors import UserError
from sibe.policy.observations import ObservationError
from sibe.policy.trained_policy import TrainedPolicy

ACTIONS = 2


def make_policy(method: str) -> TrainedPolicy:
    config = preset_config("debug", method=method)
    agent = build_agent(config, ACTIONS, torch.Generator().manual_seed(1), torch.device("cpu"))
    return TrainedPolicy(config, agent, 0)


@pytest.fixture(scope="module")
def policy() -> TrainedPolicy:
    return make_policy("none")


def states(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(
    ("obs", "words"),
    [
        (states(32, 32, 9).astype(np.float32) / 255, "not float32 [32, 32, 9]: give the pixels"),
        (states(32, 32, 9).astype(np.int64), "not int64 [32, 32, 9]: give the pixels"),
        (states(9, 32, 32), "not uint8 [9, 32, 32]: channels come last, np.moveaxis(obs, -3, -1)"),
        (states(5, 9, 32, 32), "channels come last"),
        (states(9, 32, 32) / 255, "not float64 [9, 32, 32]: channels come last"),
        (states(84, 84, 9), "policy.make_env(), or with size=32, stack=3"),
        (states(32, 32, 3), "policy.make_env(), or with size=32, stack=3"),
        (states(32, 32), "not uint8 [32, 32]: make the environment"),
        (states(1, 1, 32, 32, 9), "not uint8 [1, 1, 32, 32, 9]: make the environment"),
        (torch.zeros(32, 32, 9, dtype=torch.uint8), "not a Tensor: give a NumPy array"),
        ([[0]], "not a list: give a NumPy array"),
    ],
)
def test_what_it_was_not_trained_on_is_refused(policy: TrainedPolicy, obs: Any, words: str) -> None:
    for call in (policy.act, policy.predict):
        with pytest.raises(ValueError) as caught:
            call(obs)
        assert isinstance(caught.value, ObservationError)
        assert isinstance(caught.value, UserError)
        assert words in str(caught.value)
        assert str(caught.value).startswith("the policy takes uint8 [32, 32, 9] or a batch of it")
        assert "\n" not in str(caught.value)


def test_one_state_a_batch_and_a_view_are_fine(policy: TrainedPolicy) -> None:
    batch = states(3, 32, 32, 9)
    actions = policy.act(batch)
    assert actions.shape == (3, ACTIONS)
    assert policy.act(batch[0]).shape == (ACTIONS,)
    channels_first = np.moveaxis(batch, -1, -3).copy()
    np.testing.assert_array_equal(policy.act(np.moveaxis(channels_first, -3, -1)), actions)


def test_predict_is_act_in_other_words(policy: TrainedPolicy) -> None:
    obs = states(2, 32, 32, 9)
    action, state = policy.predict(obs, deterministic=True)
    np.testing.assert_array_equal(action, policy.act(obs))
    assert state is None
    assert (policy.predict(obs, deterministic=False)[0] != action).any()
    starts = np.array([True, False])
    np.testing.assert_array_equal(policy.predict(obs, None, starts)[0], action)


def test_predict_begins_the_episodes_of_an_agent_with_a_memory() -> None:
    policy = make_policy("plan2explore")
    env = policy.config.env
    obs = states(2, env.size, env.size, 3 * env.stack)
    start, run = np.array([True, True]), np.array([False, False])
    first = policy.predict(obs, episode_start=start)[0]
    second = policy.predict(obs, episode_start=run)[0]
    assert (first != second).any()  # it remembers
    np.testing.assert_array_equal(policy.predict(obs, episode_start=start)[0], first)
    with pytest.raises(UserError, match="must begin together"):
        policy.predict(obs, episode_start=np.array([True, False]))


def test_its_environment_is_the_one_it_was_trained_in(policy: TrainedPolicy) -> None:
    env = policy.make_env()
    assert env.observation_space.shape == (32, 32, 9)
    assert (env.unwrapped.action_repeat, env.unwrapped._split) == (8, "eval")  # type: ignore[attr-defined]
    other = policy.make_env("walker_walk", split="train", action_repeat=2, stack=1)
    assert other.observation_space.shape == (32, 32, 3)
    assert other.action_space.shape == (6,)
    with pytest.raises(UserError, match="unknown setting 'backgruond'; did you mean background"):
        policy.make_env(backgruond="noise")


def test_an_environment_made_in_python_has_to_be_given() -> None:
    policy = make_policy("none")
    env = replace(policy.config.env, task="own/Mine")
    own = TrainedPolicy(replace(policy.config, env=env), policy.agent, 0)
    with pytest.raises(UserError, match=r"policy.make_env\(env\)"):
        own.make_env()
