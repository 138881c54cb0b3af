"""The collect step: what the policy sees, what the replay is given, what is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training_dummies import FRAME, LENGTH, REPEAT, DummyEnv, DummyPolicy, DummyReplay

from sibe.envs.seeding import stream_seed
from sibe.training.collector import Collector, NonFiniteAction


def make(initial_steps: int, *, terminates: bool = False, stack: int = 3) -> Any:
    events: list[Any] = []
    env = DummyEnv(events, terminates=terminates)
    policy, replay = DummyPolicy(events), DummyReplay(events)
    return Collector(env, policy, replay, stack=stack, seed=4, initial_steps=initial_steps)


def test_the_replay_is_given_single_frames_and_the_policy_stacks_of_them() -> None:
    collector = make(initial_steps=0)
    finished = [collector.step() for _ in range(LENGTH)]
    episode = finished[-1].stored
    assert episode.frames.shape == (LENGTH + 1, *FRAME)
    assert episode.frames[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert np.allclose(episode.action[:, 0], collector.env.actions)
    shown = [state[0, 0].tolist() for state in collector.policy.shown]
    assert shown == [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2]]
    collector.step()  # a stack does not reach into the episode before
    assert collector.policy.shown[-1][0, 0].tolist() == [4] * 6


@pytest.mark.parametrize("terminates", [True, False])
def test_an_episode_ends_with_its_return_and_length(terminates: bool) -> None:
    collector = make(initial_steps=0, terminates=terminates)
    for number in range(2):
        ends = [collector.step() for _ in range(LENGTH)]
        assert ends[:-1] == [None] * (LENGTH - 1)
        finished = ends[-1]
        assert (finished.number, finished.env_steps) == (number, LENGTH * REPEAT)
        assert finished.episode_return == 0.5 + 1.0 + 1.5
        assert finished.stored.discount.tolist() == [1, 1, float(not terminates)]
    assert (collector.episode, collector.agent_step, collector.env_step) == (2, 6, 12)


def test_every_episode_has_a_seed_and_a_background_of_its_own() -> None:
    collector = make(initial_steps=0)
    for _ in range(2 * LENGTH):
        collector.step()
    resets = [event for event in collector.env.events if event[0] == "reset"]
    # Three steps after a first frame are four images of the background.
    assert resets == [
        ("reset", stream_seed(4, "train", 0), 0),
        ("reset", stream_seed(4, "train", 1), 4),
    ]
    assert collector.env.events.count(("policy reset",)) == 2


def test_the_first_actions_are_random_and_cost_the_policy_nothing() -> None:
    collector, other = make(initial_steps=4), make(initial_steps=0)
    for _ in range(6):
        collector.step()
    assert collector.env.events.count(("act",)) == 2
    assert min(collector.env.actions[:4]) < 0, "the policy's are never negative"
    other.step()
    assert other.env.actions[0] == collector.env.actions[4], "another stream than the policy's"


def test_a_restored_collector_goes_on_with_the_same_actions_and_seeds() -> None:
    collector = make(initial_steps=5)
    for _ in range(LENGTH):
        collector.step()
    state = collector.state()
    again = make(initial_steps=5)
    again.restore(state)
    for _ in range(2 * LENGTH):
        collector.step()
        again.step()
    assert again.env.actions == collector.env.actions[LENGTH:]
    assert again.env.events == collector.env.events[-len(again.env.events) :]
    assert again.state()["counters"] == {"env_step": 18, "agent_step": 9, "episode": 3}


def test_an_action_that_is_not_a_number_never_reaches_the_env() -> None:
    collector = make(initial_steps=1)
    collector.policy.broken = True
    collector.step()
    with pytest.raises(NonFiniteAction, match="non-finite at env_step 2"):
        collector.step()
    assert len(collector.env.actions) == 1
