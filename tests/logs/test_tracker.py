"""Trackers: what they are told, and that none of their failures reaches the training loop."""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sibe.errors import UserError
from sibe.logs import tracker as tracker_module
from sibe.logs.tracked_runs import check_installed, make_trackers
from sibe.logs.tracker import Tracker, TrackerError
from sibe.storage.run_files import RunFiles

ROW = {"frame": 1000, "step": 125, "episode": 1, "total_time": 2.5, "episode_reward": 3, "kl": None}
MEAN = {"frame": 800, "episode_reward": 2.0, "episodes": 2}


class FakeRun:
    """Stands in for the run objects of both packages."""

    def __init__(self, **asked: Any) -> None:
        self.asked, self.finished = asked, False
        self.logged: list[tuple[Any, ...]] = []
        self.axes: dict[str, str] = {}

    def log(self, *args: Any, **kwargs: Any) -> None:
        self.logged.append((*args, kwargs) if kwargs else args)

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes[name] = step_metric

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """The runs that were opened on fake packages trackio and wandb."""
    opened: list[FakeRun] = []

    def init(**asked: Any) -> FakeRun:
        opened.append(FakeRun(**asked))
        return opened[-1]

    for name in ("trackio", "wandb"):
        module = ModuleType(name)
        module.__dict__["init"] = init
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_FINISH_TIMEOUT", "1")  # else the tested code sets it for good
    return opened


def track(name: Any, folder: Path) -> None:
    (sink,) = make_trackers(name, RunFiles(folder), "cartpole-sibe-seed1", {"seed": 1})
    sink.episode(ROW)
    sink.evaluation(MEAN, [])
    sink.flush()
    sink.close()


def test_trackio_continues_its_run_over_env_steps(runs: list[FakeRun], tmp_path: Path) -> None:
    track("trackio", tmp_path)
    track("trackio", tmp_path)
    run_id = json.loads((tmp_path / "tracker.json").read_text())["trackio"]
    for run in runs:
        assert run.asked["project"] == "sibe" and run.asked["config"] == {"seed": 1}
        assert run.asked["name"] == f"cartpole-sibe-seed1-{run_id}"
        assert run.asked["resume"] == "allow"
        assert run.logged == [
            ({"train/episode_reward": 3.0}, {"step": 1000}),
            ({"eval/episode_reward": 2.0, "eval/episodes": 2.0}, {"step": 800}),
        ]
        assert run.finished
    assert len(runs) == 2


def test_wandb_continues_its_run_over_env_steps(runs: list[FakeRun], tmp_path: Path) -> None:
    track("wandb", tmp_path)
    track("wandb", tmp_path)
    run_id = json.loads((tmp_path / "tracker.json").read_text())["wandb"]
    for run in runs:
        assert run.asked["id"] == run_id and run.asked["resume"] == "allow"
        assert run.asked["dir"] == str(tmp_path) and run.asked["name"] == "cartpole-sibe-seed1"
        assert run.axes == {"train/*": "env_step", "eval/*": "env_step"}
        # No step of wandb's own: an evaluation may end after later episodes.
        assert run.logged == [
            ({"train/episode_reward": 3.0, "env_step": 1000},),
            ({"eval/episode_reward": 2.0, "eval/episodes": 2.0, "env_step": 800},),
        ]
        assert run.finished
    assert len(runs) == 2


def test_each_tracker_has_its_own_id(runs: list[FakeRun], tmp_path: Path) -> None:
    track("trackio", tmp_path)
    first = json.loads((tmp_path / "tracker.json").read_text())
    track("wandb", tmp_path)
    both = json.loads((tmp_path / "tracker.json").read_text())
    assert set(both) == {"trackio", "wandb"} and both["trackio"] == first["trackio"]


@pytest.mark.parametrize(
    ("variable", "mode"), [(None, "offline"), ("WANDB_API_KEY", None), ("WANDB_MODE", None)]
)
def test_wandb_is_offline_unless_the_environment_says_otherwise(
    runs: list[FakeRun],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    mode: str | None,
) -> None:
    if variable is not None:
        monkeypatch.setenv(variable, "online")
    track("wandb", tmp_path)
    assert runs[0].asked["mode"] == mode


def test_nothing_is_opened_without_a_row(runs: list[FakeRun], tmp_path: Path) -> None:
    (sink,) = make_trackers("trackio", RunFiles(tmp_path), "name", {})
    sink.flush()
    sink.close()
    assert runs == [] and list(tmp_path.iterdir()) == []
    assert make_trackers("none", RunFiles(tmp_path), "name", {}) == []


@pytest.mark.parametrize(
    ("name", "install"), [("trackio", "pip install 'sibe[track]'"), ("wandb", "pip install wandb")]
)
def test_a_missing_package_is_one_line(
    name: Any, install: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()  # what wandb leaves in the working directory is not the package
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(UserError) as caught:
        check_installed(name)
    assert install in str(caught.value) and f"--track {name}" in str(caught.value)
    (tmp_path / name / "__init__.py").touch()
    importlib.invalidate_caches()
    check_installed(name)
    check_installed("none")


# failures ---------------------------------------------------------------------------------------


def until_raised(call: Callable[[], None]) -> str:
    """Return what ``call`` raises once the thread has failed."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            call()
        except TrackerError as error:
            return str(error)
        time.sleep(0.01)
    raise AssertionError("nothing was raised")


class FailsAt(FakeRun):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        if where == "init":
            raise ConnectionError("no route")

    def log(self, *args: Any, **kwargs: Any) -> None:
        if self.where == "log":
            raise SystemExit("no route")

    def finish(self) -> None:
        if self.where == "finish":
            raise OSError("no route")


@pytest.mark.parametrize("where", ["init", "log"])
def test_a_failure_is_raised_by_the_next_row(where: str) -> None:
    tracker = Tracker("wandb", lambda: FailsAt(where))
    tracker.episode(ROW)  # the loop goes on at once
    assert "wandb failed" in (text := until_raised(lambda: tracker.episode(ROW)))
    assert "no route" in text


@pytest.mark.parametrize("where", ["init", "log", "finish"])
def test_a_failure_at_the_end_is_raised_by_close(where: str) -> None:
    tracker = Tracker("wandb", lambda: FailsAt(where))
    tracker.episode(ROW)
    with pytest.raises(TrackerError, match="no route"):
        tracker.close()


def test_a_tracker_that_hangs_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "_BACKLOG", 5)
    release = threading.Event()

    def hang() -> FakeRun:
        release.wait(60)
        return FakeRun()

    tracker = Tracker("wandb", hang, patience=0.1)
    started = time.monotonic()
    for _ in range(4):
        tracker.episode(ROW)
    with pytest.raises(TrackerError, match="did not finish within"):
        tracker.close()
    with pytest.raises(TrackerError, match="takes no more rows"):
        tracker.episode(ROW)
    assert time.monotonic() - started < 10
    release.set()
