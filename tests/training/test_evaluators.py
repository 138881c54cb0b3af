"""The process that evaluates: what it returns, and what becomes of its troubles."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from sibe.agents.protocol import Agent
from sibe.catalogue.build import build_agent
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import to_json
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.training.determinism import compute_with
from sibe.training.evaluators import EvaluationHere, EvaluationProcess

SEEDS = [3, 4, 5]


@pytest.fixture(scope="module")
def config() -> RunConfig:
    config = preset_config("debug", background="noise")
    threads = torch.get_num_threads()
    compute_with(threads)  # as a run does
    return replace(config, threads=threads, schedule=replace(config.schedule, eval_process=True))


@pytest.fixture
def process(config: RunConfig) -> Iterator[EvaluationProcess]:
    made = EvaluationProcess(config, 1)
    yield made
    made.close()


def agent(config: RunConfig, seed: int) -> Agent:
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
    with pytest.raises(UserError, match="failed: RuntimeError"):
        process.result()
    process.start(agent(config, 0), SEEDS, record=False)  # and it goes on
    assert len(process.result().episodes) == len(SEEDS)


def test_the_end_of_the_process_is_told(config: RunConfig, process: EvaluationProcess) -> None:
    process.start(agent(config, 0), SEEDS, record=False)
    os.kill(process._pid, signal.SIGKILL)
    with pytest.raises(UserError, match="has ended"):
        process.result()
    with pytest.raises(UserError, match="has ended"):
        process.start(agent(config, 0), SEEDS, record=False)


def test_a_process_that_cannot_start_says_why_at_once(config: RunConfig) -> None:
    broken = replace(config, env=replace(config.env, task="cartpole_nowhere"))
    with pytest.raises(UserError, match=r"failed: UserError: .*cartpole_nowhere"):
        EvaluationProcess(broken, 1)


def test_close_ends_it_in_the_midst_of_an_episode(config: RunConfig) -> None:
    made = EvaluationProcess(config, 1)
    child = psutil.Process(made._pid)
    made.start(agent(config, 0), list(range(1000)), record=False)
    assert not made.finished()
    made.close()
    assert not child.is_running()
    made.close()  # nothing is left to end


_LEARNER = """
import json, sys, time
from sibe.catalogue.run_config import from_json
from sibe.training.determinism import compute_with
from sibe.training.evaluators import EvaluationProcess
if __name__ == "__main__":
    made = EvaluationProcess(from_json(json.loads(sys.argv[1])), 1)
    print(made._pid, flush=True)
    time.sleep(60)
"""


def test_it_does_not_outlive_a_learner_that_is_killed(config: RunConfig, tmp_path: Path) -> None:
    script = tmp_path / "learner.py"
    script.write_text(_LEARNER)
    command = [sys.executable, str(script), json.dumps(to_json(config))]
    learner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert learner.stdout is not None
    child = psutil.Process(int(learner.stdout.readline()))
    assert child.is_running()
    learner.kill()
    learner.wait()
    gone, _ = psutil.wait_procs([child], timeout=10)
    assert gone
