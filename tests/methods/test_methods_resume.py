"""Every method: a run that stops after a checkpoint and goes on ends as one that never stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import sibe
from sibe.catalogue.presets import preset_config
from sibe.catalogue.registry import METHODS
from sibe.config.schema import RunConfig
from sibe.logs.csv_log import WALL_CLOCK_COLUMNS
from sibe.methods.entry import Entry
from sibe.storage import checkpoint
from sibe.training import run
from sibe.training.trainer import Trainer


class Stopped(Exception):
    """The run was stopped on purpose."""


def short(method: str) -> RunConfig:
    """Two short episodes, a checkpoint between them."""
    config = preset_config("debug", method=method)
    schedule = replace(
        config.schedule,
        env_steps=2000,
        checkpoint_every=1000,
        eval_every=2000,
        eval_episodes=1,
        initial_steps=10,
        video=False,
    )
    return replace(config, env=replace(config.env, action_repeat=25), schedule=schedule, threads=1)


def rows(path: Path) -> list[list[str]]:
    header, *rest = [line.split(",") for line in path.read_text().splitlines()]
    keep = [i for i, name in enumerate(header) if name not in WALL_CLOCK_COLUMNS]
    return [[row[i] for i in keep] for row in (header, *rest)]


def leaves(state: Any, name: str = "") -> dict[str, Any]:
    if isinstance(state, dict):
        return {k: v for key in state for k, v in leaves(state[key], f"{name}/{key}").items()}
    if isinstance(state, (list, tuple)):
        return {k: v for i, x in enumerate(state) for k, v in leaves(x, f"{name}/{i}").items()}
    return {name: state}


def final_agent(path: Path) -> dict[str, Any]:
    found = checkpoint.load_newest(path / "checkpoint", map_location="cpu", report=print)
    assert found is not None and found[0] == 2000
    return leaves(found[1]["agent"])


@pytest.mark.parametrize("name", [n for n, e in METHODS.items() if isinstance(e, Entry)])
def test_resume_is_exact(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "conclude", lambda _: None)  # pictures are tested elsewhere
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    sibe.train(config=short(name), out=whole)

    def save_and_stop(self: Trainer) -> None:
        save(self)
        raise Stopped

    save = Trainer.save
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", save_and_stop)
        with pytest.raises(Stopped):
            sibe.train(config=short(name), out=broken)
    assert checkpoint.list_steps(broken / "checkpoint") == [1000]
    sibe.train(config=short(name), out=broken)

    for file in ("train.csv", "eval.csv", "eval_episodes.csv"):
        assert rows(whole / file) == rows(broken / file), file
    first, second = final_agent(whole), final_agent(broken)
    assert first.keys() == second.keys()
    for key, value in first.items():
        other = second[key]
        equal = torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other
        assert equal, key
