"""What a run says at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import to_json
from sibe.storage.run_directory import RunDirectory
from sibe.training.messages import conclude


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
