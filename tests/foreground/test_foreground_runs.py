"""Whole runs that mask their background: exact resumes, exports, sensors, the ladder."""

from __future__ import annotations

import csv
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from run_records import flat, without_wall_clock

import sibe
from sibe.catalogue.build import build_agent
from sibe.catalogue.presets import preset_config
from sibe.config.schema import RunConfig
from sibe.envs.tasks import BackgroundName
from sibe.foreground import learner as rounds
from sibe.ladder.learner import Learner
from sibe.ladder.rungs import make_ladder
from sibe.policy.export import export
from sibe.storage import checkpoint
from sibe.training import run
from sibe.training.build import build_parts, build_replay
from sibe.training.environment import make_training_env
from sibe.training.evaluation import make_eval_envs
from sibe.training.seeding import torch_stream
from sibe.training.trainer import Trainer


class Stopped(Exception):
    """The run was stopped on purpose."""


def make_short(patch: pytest.MonkeyPatch) -> None:
    short = {"FIRST": 20, "STEPS": 10, "FIRST_STEPS": 400, "_WARM_UP": 20}
    for name, value in short.items():
        patch.setattr(rounds, name, value)
    patch.setattr(run, "conclude", lambda _: None)  # pictures are tested elsewhere


@pytest.fixture(autouse=True)
def early_short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    make_short(monkeypatch)


def short(background: BackgroundName = "video") -> RunConfig:
    """Three episodes of 40 agent steps in front of a loop that recurs in the second."""
    config = preset_config("debug", method="sibe")
    schedule = replace(
        config.schedule,
        env_steps=3000,
        checkpoint_every=1000,
        eval_every=3000,
        eval_episodes=1,
        initial_steps=10,
        video=False,
    )
    loop: dict[str, Any] = {"loop_frames": 37} if background == "video" else {}
    env = replace(config.env, action_repeat=25, background=background, size=48, **loop)
    encoder = replace(config.encoder, foreground=True)
    return replace(config, env=env, encoder=encoder, schedule=schedule, threads=1)


def final_state(out: Path) -> tuple[int, dict[str, Any]]:
    found = checkpoint.load_newest(out / "checkpoint", map_location="cpu", report=print)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        make_short(patch)
        sibe.train(config=short(), out=out)
    return out


@pytest.mark.parametrize("env_step", [1000, 2000])  # before and after the first round
def test_stopped_between_rounds_it_ends_the_same(
    env_step: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, save = tmp_path / "broken", Trainer.save

    def save_and_stop(self: Trainer) -> None:
        save(self)
        if self.env_step == env_step:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", save_and_stop)
        with pytest.raises(Stopped):
            sibe.train(config=short(), out=out)
    step, state = final_state(out)
    assert step == env_step
    assert bool(state["agent"]["foreground"]["ready"]) == (env_step == 2000)
    sibe.train(config=short(), out=out)
    for file in ("train.csv", "eval.csv", "eval_episodes.csv"):
        assert without_wall_clock(whole / file) == without_wall_clock(out / file), file
    first, second = (flat(final_state(path)[1]["agent"]) for path in (whole, out))
    assert first.keys() == second.keys()
    for key, value in first.items():
        other = second[key]
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, key


def test_a_loaded_policy_looks_through_what_was_learned(whole: Path) -> None:
    agent: Any = sibe.load_policy(whole).agent
    assert bool(agent.foreground.network.ready)
    states = np.random.default_rng(0).integers(0, 256, (2, 48, 48, 9)).astype(np.uint8)
    seen = agent.foreground.network.masked_states(torch.from_numpy(states))
    assert torch.equal(agent.embed(states)["c"], agent.encoder.single(seen))
    assert not torch.equal(seen, torch.from_numpy(states))


def test_an_export_looks_through_it_too(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "export"
    export(whole, out, episodes=1, seed=1, overwrite=False, device="cpu")
    run_agent, agent = (sibe.load_policy(path).agent for path in (whole, out))
    assert agent.foreground is not None and agent.foreground.ready
    states = np.random.default_rng(0).integers(0, 256, (2, 48, 48, 9)).astype(np.uint8)
    assert torch.equal(run_agent.embed(states)["c"], agent.embed(states)["c"])


def test_an_evaluation_process_sees_the_same(whole: Path, tmp_path: Path) -> None:
    config = short()
    config = replace(config, schedule=replace(config.schedule, eval_process=True))
    sibe.train(config=config, out=tmp_path / "run")
    rows = without_wall_clock(tmp_path / "run" / "eval_episodes.csv")
    assert rows == without_wall_clock(whole / "eval_episodes.csv")


def test_it_says_when_masking_begins_and_why_it_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sibe.train(config=short("noise"), out=tmp_path / "noise")
    assert "no foreground mask yet (too few backgrounds recurred" in capsys.readouterr().out
    sibe.train(config=short(), out=tmp_path / "video")
    assert "the agent sees only the robot" in capsys.readouterr().out
    monkeypatch.setattr(rounds.ForegroundLearner, "_explains", lambda *_: False)
    sibe.train(config=short(), out=tmp_path / "refused")
    assert "or training was not accepted): the agent sees whole" in capsys.readouterr().out


@pytest.mark.parametrize(
    "sensors", [{"sensors": ("pixels", "state")}, {"cameras": (0, 1)}], ids=["state", "cameras"]
)
def test_it_looks_at_the_pictures_of_all_sensors(sensors: dict[str, Any], tmp_path: Path) -> None:
    config = short()
    config = replace(config, env=replace(config.env, **sensors))
    policy = sibe.train(config=config, out=tmp_path / "run").policy
    agent: Any = policy.agent
    assert bool(agent.foreground.network.ready)
    env = policy.make_env()
    obs, _ = env.reset(seed=1)
    env.close()
    states: dict[str, Any] = {name: reading[None] for name, reading in obs.items()}
    views = config.env.seen.views
    tensors = {name: torch.from_numpy(state) for name, state in states.items()}
    seen = {name: agent.foreground.network.masked_states(tensors[name]) for name in views}
    expected = agent.encoder.single({**tensors, **seen})
    assert torch.equal(agent.embed(states)["c"], expected)
    assert not torch.equal(agent.encoder.single(tensors), expected)


def test_without_pictures_there_is_no_robot_to_find() -> None:
    config = short()
    config = replace(config, env=replace(config.env, sensors=("state",)))
    assert build_parts(config, torch.device("cpu")).agent.foreground is None


def test_the_cpu_preset_masks_the_background_of_video_only() -> None:
    for name in get_args(BackgroundName):
        for preset, video in (("cpu", name.startswith("video")), ("paper", False)):
            encoder = preset_config(preset, background=name).encoder
            assert encoder.foreground is video, (preset, name)


def test_the_rung_agent_of_the_ladder_trains_the_same_rounds(whole: Path) -> None:
    config = short()
    returns: list[float] = []
    with closing(make_training_env(config.env)) as env, ExitStack() as stack:
        evals = make_eval_envs(config.env, 1)
        for other in evals:
            stack.callback(other.close)
        agent: Any = build_agent(config, 1, torch_stream(config.seed, "agent"), torch.device("cpu"))
        replay = build_replay(config, env, agent.foreground.masked)
        Learner(
            config,
            agent,
            env,
            evals,
            replay,
            stack=config.env.stack,
            say=lambda found: returns.append(found.episode_return),
        ).learn()
    assert bool(agent.foreground.network.ready)
    (row,) = csv.DictReader((whole / "eval.csv").open())
    assert returns == [pytest.approx(float(row["episode_reward"]), rel=1e-6)]


def test_the_other_rungs_of_the_ladder_see_whole_frames() -> None:
    config = preset_config("cpu", background="video")
    ladder = make_ladder(config, config, env_steps=1, updates=1, errors=(), rungs=("agent",))
    assert not ladder.plain.encoder.foreground and ladder.whole.encoder.foreground
