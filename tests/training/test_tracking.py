"""`sibe train --track` from the outside, with packages that stand in for the real ones."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import comparable, from_json, to_json
from sibe.cli import main as cli
from sibe.logs.csv_log import read_csv
from sibe.storage import checkpoint

SHORT = ("--preset", "debug", "--method", "none", "--env-steps", "2000", "--threads", "1")
SAVING = (*SHORT, "--checkpoint-every", "1000", "--eval-every", "1000")

FAKE = """
import json, os

class Run:
    def __init__(self, name):
        self.name = name
    def log(self, values, step):
        with open(os.environ["FAKE_TRACKIO"], "a") as file:
            print(json.dumps({"run": self.name, "step": step, "values": values}), file=file)
    def finish(self):
        pass

def init(*, project, name, config, resume, embed, auto_log_gpu, auto_log_cpu):
    assert resume == "allow"
    return Run(name)
"""
BROKEN = "raise ImportError('half installed')\n"


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(list(args))
    return int(stop.value.code or 0)


def provide(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make ``code`` the package trackio, and return the file that it logs to."""
    (folder / "trackio.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("FAKE_TRACKIO", str(folder / "log"))
    monkeypatch.delitem(sys.modules, "trackio", raising=False)
    return folder / "log"


def read(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize("tracker", ["trackio", "wandb"])
def test_a_missing_package_is_refused_before_anything_is_made(
    tracker: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run("train", *SHORT, "--out", str(tmp_path / "run"), "--track", tracker) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1 and "pip install" in error
    assert not (tmp_path / "run").exists()


def test_a_killed_run_goes_on_in_the_same_tracker_run_and_may_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = provide(tmp_path, FAKE, monkeypatch), tmp_path / "run"

    def stop(folder: Path, count: int = 2) -> None:
        raise OSError("stopped after the first checkpoint")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "keep_newest", stop)
        assert run("train", *SAVING, "--out", str(out), "--track", "trackio") == 2
    before = read(log)
    assert {entry["step"] for entry in before} == {1000}
    assert run("train", "--resume", str(out)) == 0
    entries = read(log)
    (name,) = {entry["run"] for entry in entries}
    run_id = json.loads((out / "tracker.json").read_text())["trackio"]
    assert name == f"cartpole_swingup-clean-none-seed1-{run_id}"
    train = read_csv(out / "train.csv")
    logged = {e["step"]: e["values"] for e in entries if "train/critic_loss" in e["values"]}
    assert list(logged) == list(train["frame"])
    for step, loss in zip(train["frame"], train["critic_loss"], strict=True):
        assert logged[step]["train/critic_loss"] == loss
    name = "eval/episode_reward"
    returns = [e["values"][name] for e in entries if name in e["values"]]
    assert returns == list(read_csv(out / "eval.csv")["episode_reward"])
    # Where it is tracked is no part of what it is.
    capsys.readouterr()
    assert run("train", *SAVING, "--out", str(out)) == 0
    assert run("train", "--resume", str(out), "--track", "none") == 0
    assert capsys.readouterr().out.count("already finished") == 2
    assert run("train", *SAVING, "--out", str(out), "--seed", "2", "--track", "trackio") == 2
    assert "seed is 1 there and 2 here" in capsys.readouterr().err


def test_a_broken_tracker_is_reported_once_and_the_run_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    provide(tmp_path, BROKEN, monkeypatch)
    out = tmp_path / "run"
    assert run("train", *SHORT, "--out", str(out), "--track", "trackio") == 0
    said = capsys.readouterr().out
    assert said.count("note: trackio failed (ImportError: half installed)") == 1
    assert list(read_csv(out / "train.csv")["frame"]) == [1000, 2000]


def test_a_config_from_before_tracking_is_that_of_the_same_run() -> None:
    config = preset_config("debug")
    tracked = to_json(replace(config, schedule=replace(config.schedule, track="wandb")))
    old = to_json(config)
    del old["schedule"]["track"]
    assert from_json(old) == config
    assert comparable(old) == comparable(to_json(config)) == comparable(tracked)
    assert comparable({**old, "seed": 2}) != comparable(old)
