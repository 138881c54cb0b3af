"""What a run says at its start and at its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import to_json
from sibe.kernels import half_convolutions
from sibe.storage.run_directory import RunDirectory
from sibe.training.messages import announce, conclude
from sibe.training.threads import Threads


@pytest.mark.parametrize("available", [False, True])
@pytest.mark.parametrize("fusion", ["early", "late"])
def test_autocast_without_effect_is_mentioned(
    fusion: Literal["early", "late"],
    available: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(half_convolutions, "available", lambda: available)
    config = preset_config("debug")
    encoder = replace(config.encoder, autocast=True, fusion=fusion)
    announce(replace(config, encoder=encoder, device="cpu"), Path("run"), Threads(1, "all cores"))
    said = "--encoder.autocast has no effect" in capsys.readouterr().out
    assert said == (fusion == "late" and not available)


@pytest.mark.parametrize(
    ("task", "background", "other"),
    [
        ("cartpole_swingup", "clean", "video"),
        ("cartpole_swingup", "video_random", "noise"),
        ("Pendulum-v1", "clean", None),  # it cannot be seen before anything else
        ("HalfCheetah-v5", "noise", "video"),
    ],
)
def test_the_commands_that_are_proposed_work(
    task: str,
    background: str,
    other: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sibe.logs.learning_curve.write_learning_curve", lambda run, out: out)
    config = to_json(preset_config("debug", task=task, background=background))
    with RunDirectory.create_or_open(tmp_path / "run", config, {}) as directory:
        conclude(directory)
    commands = capsys.readouterr().out.split("next: ")[1].split("\n")
    backgrounds = [line.split()[-1] for line in commands if "--background" in line]
    assert backgrounds == ([] if other is None else [other])
    assert commands[0] == f"sibe eval {tmp_path / 'run'} --video out.mp4"
