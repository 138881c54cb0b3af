"""A run that is extended ends as one that was asked for as many env steps from the start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_records import flat

from sibe.catalogue.presets import preset_config
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.logs.csv_log import WALL_CLOCK_COLUMNS, read_csv
from sibe.storage import checkpoint
from sibe.storage.run_files import RunFiles
from sibe.training import run as run_module
from sibe.training.recorder import Recorder
from sibe.training.run import resume, train

SHORT, LONG = 1000, 2000


def config(env_steps: int) -> RunConfig:
    """An evaluation is due at 1600 env steps alone, and not where either run ends."""
    debug = preset_config("debug", method="none", background="noise")
    schedule = replace(
        debug.schedule,
        env_steps=env_steps,
        eval_every=1600,
        eval_episodes=1,
        checkpoint_every=1000,
        replay_capacity=200,  # wraps in the second episode
    )
    return replace(debug, schedule=schedule, threads=1)


@pytest.fixture(scope="module", autouse=True)
def without_pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "conclude", lambda _: None)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config(LONG), tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config(SHORT), tmp_path_factory.mktemp("runs") / "short")


@pytest.fixture
def short(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def assert_same(run: Path, other: Path) -> None:
    for name in ("train.csv", "eval.csv", "eval_episodes.csv"):
        a, b = (read_csv(path / name) for path in (run, other))
        assert a.keys() == b.keys()
        for column in a.keys() - set(WALL_CLOCK_COLUMNS):
            assert a[column].tobytes() == b[column].tobytes(), (name, column)
    assert RunFiles(run).read_config() == RunFiles(other).read_config()
    videos = [[video.name for video in RunFiles(path).list_videos()] for path in (run, other)]
    assert videos[0] == videos[1] == [f"eval_{LONG:09d}.mp4"]
    states = []
    for path in (run, other):
        found = checkpoint.load_newest(path / "checkpoint", map_location="cpu", report=print)
        assert found is not None and found[0] == LONG
        state = {name: part for name, part in found[1].items() if name not in ("elapsed", "logs")}
        states.append(flat(state))
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        other_value = states[1][name]
        is_tensor = isinstance(value, torch.Tensor)
        assert torch.equal(value, other_value) if is_tensor else value == other_value, name


def test_extended_by_directory(short: Path, whole: Path) -> None:
    assert list(read_csv(short / "eval.csv")["frame"]) == [SHORT]
    resume(short, env_steps=LONG)
    assert list(read_csv(short / "eval.csv")["frame"]) == [1600, LONG]
    assert_same(short, whole)


def test_the_same_command_with_more_env_steps_extends(
    short: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(config(LONG), short)
    assert f"the run is extended to {LONG} env steps" in capsys.readouterr().out
    assert_same(short, whole)


@pytest.mark.parametrize("when", ["rewind", "open", "tick"])
def test_killed_at_any_time_of_the_extension(
    short: Path, whole: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the logs are cut, right after, and once new rows are in them."""
    real = getattr(Recorder, when)
    calls = []

    def killed(self: Any, *args: Any) -> None:
        calls.append(args)
        if (when == "tick" and args[0] > 1700) or (when == "rewind" and len(calls) == 2):
            raise SystemError("killed")
        real(self, *args)
        if when == "open":
            raise SystemError("killed")

    with monkeypatch.context() as patch, pytest.raises(SystemError):
        patch.setattr(Recorder, when, killed)
        resume(short, env_steps=LONG)
    resume(short)
    assert_same(short, whole)


def test_a_run_cannot_be_cut(short: Path) -> None:
    before = {path: path.read_bytes() for path in short.rglob("*.*") if path.is_file()}
    with pytest.raises(UserError, match=r"a run of 1000 env steps.*not cut to 500.*--resume"):
        resume(short, env_steps=500)
    assert {path: path.read_bytes() for path in before} == before


def test_results_without_checkpoints_stay_as_they_are(whole: Path, tmp_path: Path) -> None:
    results = Path(shutil.copytree(whole, tmp_path / "results"))
    shutil.rmtree(results / "checkpoint")
    with pytest.raises(UserError, match="no checkpoint to go on from"):
        resume(results, env_steps=LONG + 1000)
    assert RunFiles(results).read_config() == RunFiles(whole).read_config()
