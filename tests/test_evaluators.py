"""The process that evaluates: what it returns, and what becomes of its troubles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from sibe.agents.build import build_agent
from sibe.config import RunConfig
from sibe.errors import UserError
from sibe.presets import preset_config
from sibe.training.evaluators import EvaluationHere, EvaluationProcess

SEEDS = [3, 4, 5]


@pytest.fixture(scope="module")
def config() -> RunConfig:
    config = preset_config("debug", background="noise")
    threads = torch.get_num_threads()
    return replace(config, threads=threads, schedule=replace(config.schedule, eval_process=True))


@pytest.fixture
def process(config: RunConfig) -> Iterator[EvaluationProcess]:
    made = EvaluationProcess(config, 1)
    yield made
    made.close()


def agent(config: RunConfig, seed: int) -> object:
    return build_agent(config, 1, torch.Generator().manual_seed(seed), torch.device("cpu"))


def test_both_play_the_same(config: RunConfig, process: EvaluationProcess) -> None:
    here, returns = EvaluationHere(config), []
    for seed, record in ((0, True), (1, False)):
        one = agent(config, seed)
        here.start(one, SEEDS, record=record)
        process.start(one, SEEDS, record=record)
        for parameter in one.policy_networks()["actor"].parameters():
            torch.nn.init.zeros_(parameter)  # what comes after the start has no effect
        ours, theirs = here.result(), process.result()
        assert theirs.episodes == ours.episodes
        assert len(theirs.frames) == len(ours.frames) == (126 if record else 0)
        assert np.array_equal(theirs.frames, ours.frames)
        returns.append([episode.episode_return for episode in theirs.episodes])
    assert returns[0] != returns[1]  # two agents, and not one of them twice
    here.close()


def test_what_goes_wrong_in_the_process_is_told_here(
    config: RunConfig, process: EvaluationProcess
) -> None:
    other = replace(config, encoder=replace(config.encoder, features=7))
    process.start(agent(other, 0), SEEDS, record=False)
    with pytest.raises(UserError, match="the evaluation failed: RuntimeError"):
        process.result()
    process.start(agent(config, 0), SEEDS, record=False)  # and it goes on
    assert len(process.result().episodes) == len(SEEDS)


def test_the_death_of_the_process_is_told(config: RunConfig, process: EvaluationProcess) -> None:
    process.start(agent(config, 0), SEEDS, record=False)
    process._process.kill()
    process._process.join()
    with pytest.raises(UserError, match="has died"):
        process.result()
    with pytest.raises(UserError, match="has died"):
        process.start(agent(config, 0), SEEDS, record=False)
