"""Every method and agent: a run that was stopped or killed ends as one that never was."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_records import flat, without_wall_clock

import sibe
from sibe.catalogue.presets import preset_config
from sibe.catalogue.registry import ENTRIES
from sibe.config.schema import RunConfig
from sibe.storage import checkpoint
from sibe.training import run
from sibe.training.trainer import Trainer


class Stopped(Exception):
    """The run was stopped on purpose."""


SENSORS: dict[str, dict[str, Any]] = {
    "pixels": {},
    "several": {
        "sensors": ("pixels", "state"),
        "cameras": (0, 1),
        "sensor_dropout": 0.3,
    },
    "state": {"sensors": ("state",)},
}


def short(method: str, sensors: str) -> RunConfig:
    """Two short episodes, a checkpoint between them."""
    config = preset_config("debug", method=method)
    if method == "sibe" and sensors == "several":
        config = replace(config, method_config=replace(config.method_config, sensors="cross"))
    schedule = replace(
        config.schedule,
        env_steps=2000,
        checkpoint_every=1000,
        eval_every=2000,
        eval_episodes=1,
        initial_steps=10,
        video=False,
    )
    env = replace(config.env, action_repeat=25, **SENSORS[sensors])
    return replace(config, env=env, schedule=schedule, threads=1)


def final_agent(path: Path) -> dict[str, Any]:
    found = checkpoint.load_newest(path / "checkpoint", map_location="cpu", report=print)
    assert found is not None and found[0] == 2000
    return flat(found[1]["agent"])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    folder = tmp_path_factory.mktemp("whole")

    def train(name: str, sensors: str) -> Path:
        out = folder / f"{name}-{sensors}"
        if not out.exists():
            sibe.train(config=short(name, sensors), out=out)
        return out

    return train


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "conclude", lambda _: None)  # they are tested elsewhere


def assert_same_result(whole: Path, broken: Path) -> None:
    for file in ("train.csv", "eval.csv", "eval_episodes.csv"):
        assert without_wall_clock(whole / file) == without_wall_clock(broken / file), file
    first, second = final_agent(whole), final_agent(broken)
    assert first.keys() == second.keys()
    for key, value in first.items():
        other = second[key]
        equal = torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other
        assert equal, key


@pytest.mark.parametrize(
    ("name", "sensors"),
    [
        *((name, kind) for name in ENTRIES for kind in ("pixels", "several")),
        ("sibe", "state"),
        ("plan2explore", "state"),
    ],
)
def test_resume_is_exact(
    name: str,
    sensors: str,
    uninterrupted: Callable[[str, str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = tmp_path / "broken"

    def save_and_stop(self: Trainer) -> None:
        save(self)
        raise Stopped

    save = Trainer.save
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", save_and_stop)
        with pytest.raises(Stopped):
            sibe.train(config=short(name, sensors), out=broken)
    assert checkpoint.list_steps(broken / "checkpoint") == [1000]
    sibe.train(config=short(name, sensors), out=broken)
    assert_same_result(uninterrupted(name, sensors), broken)


def train_in_a_process(name: str, sensors: str, out: str) -> None:
    sibe.train(config=short(name, sensors), out=out)


@pytest.mark.parametrize("name", ENTRIES)
def test_killed_with_several_sensors_it_ends_the_same(
    name: str,
    uninterrupted: Callable[[str, str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGKILL after a checkpoint, in the middle of whatever came next."""
    # Set by a test that has drawn, it would make the server of the forks open EGL.
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sibe.training.build", "dm_control.suite"])  # once for all
    out = tmp_path / "killed"
    process = context.Process(target=train_in_a_process, args=(name, "several", str(out)))
    process.start()
    while 1000 not in checkpoint.list_steps(out / "checkpoint"):
        assert process.is_alive(), "it ended before the kill"
        time.sleep(0.01)
    process.kill()
    process.join()
    assert checkpoint.list_steps(out / "checkpoint") == [1000]
    sibe.train(config=short(name, "several"), out=out)
    assert_same_result(uninterrupted(name, "several"), out)
