"""``--deterministic portable``: one result, whatever the processor and the number of threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_records import without_wall_clock

from sibe.catalogue.presets import preset_config
from sibe.cli import main as cli
from sibe.cli.verify import verify
from sibe.errors import UserError
from sibe.training import portable, reference_run, run
from sibe.training.reference_run import Result, read_reference, reference_config
from sibe.training.run import resolve
from sibe.training.threads import threads_of

FLAGS = (
    *("train", "--deterministic", "portable", "--preset", "debug", "--background", "noise"),
    *("--action-repeat", "25", "--initial-steps", "20", "--eval-episodes", "1", "--no-video"),
)


def sibe(*args: object) -> str:
    unset = {k: v for k, v in os.environ.items() if k not in portable.VARIABLES}
    command = [sys.executable, "-m", "sibe", *map(str, args)]
    done = subprocess.run(command, env=unset, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_threads_and_a_resume_do_not_matter(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    sibe(*FLAGS, "--threads", 1, "--env-steps", 2000, "--out", one)
    said = sibe(*FLAGS, "--threads", 2, "--env-steps", 1000, "--out", two)
    assert "with 1 thread (--deterministic portable)" in said
    assert json.loads((two / "config.json").read_text())["deterministic"] == "portable"
    assert json.loads((two / "meta.json").read_text())["kernels"] == []
    said = sibe("train", "--resume", two, "--env-steps", 2000)  # sets the variables by itself
    assert "continuing at env_step 1000" in said
    for name in ("train.csv", "eval.csv", "eval_episodes.csv"):
        assert without_wall_clock(one / name) == without_wall_clock(two / name)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The environments of the processes that this one would have become."""
    for name in portable.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    environments: list[dict[str, str]] = []

    def note(path: str, command: list[str], env: dict[str, str]) -> None:
        assert command[1:] == sys.orig_argv[1:]
        environments.append(env)

    monkeypatch.setattr(os, "execve", note)
    return environments


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("train --seed 1 --deterministic portable", True),
        ("train --deterministic=portable", True),
        ("verify", True),
        ("verify --help", False),
        ("train --deterministic machine", False),
        ("train", False),
        ("report portable", False),
        ("train --resume portable", True),
        ("train --resume=machine", False),
        ("train --resume missing", False),
        ("train --resume damaged", False),
        ("train --resume folder", False),
    ],
)
def test_when_the_command_starts_again(
    line: str,
    asked: bool,
    started: list[dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {name: json.dumps({"deterministic": name}) for name in ("portable", "machine")}
    for name, text in {**texts, "damaged": "[" * 100_000}.items():
        Path(name).mkdir()
        Path(name, "config.json").write_text(text)
    Path("folder", "config.json").mkdir(parents=True)
    portable.restart_if_asked(line.split())
    assert len(started) == asked
    if asked:
        assert portable.VARIABLES.items() <= started[0].items()
        for name, value in portable.VARIABLES.items():
            monkeypatch.setenv(name, value)
        portable.restart_if_asked(line.split())  # once is enough
        assert len(started) == 1


def test_a_process_with_other_arithmetic_is_refused(
    started: list[dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([*FLAGS, "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1
    assert "put this before the command: env OMP_NUM_THREADS='1' " in said
    assert not (tmp_path / "run").exists()


def test_what_portable_decides() -> None:
    config = replace(preset_config("debug"), deterministic="portable", threads=8)
    assert str(threads_of(config, begun_with=2)) == "1 thread (--deterministic portable)"
    resolved = resolve(config)
    assert (resolved.threads, resolved.device) == (1, "cpu")
    with pytest.raises(UserError, match="leave out --device cuda"):
        resolve(replace(config, device="cuda"))


def test_the_reference_is_whole() -> None:
    reference = read_reference()
    assert [len(sha256) for sha256 in reference.sha256.values()] == [64] * 4
    assert {"torch", "numpy", "mujoco", "libc", "OpenGL"} <= reference.versions.keys()
    assert reference_config().deterministic == "portable"


@pytest.mark.parametrize(
    ("sha256", "code", "lines"),
    [
        ({}, 0, ["identical to the reference result"]),
        (
            {"eval.csv": "other"},
            1,
            ["differs from the reference result", "  eval.csv: not what the reference has"],
        ),
    ],
)
def test_verify_says_what_differs(
    sha256: dict[str, str],
    code: int,
    lines: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reference = read_reference()
    versions = {**reference.versions, "torch": "1.0"}
    here = Result({**reference.sha256, **sha256}, versions)
    calls: list[Any] = []
    monkeypatch.setattr(run, "train", lambda *args: calls.append(args))
    monkeypatch.setattr(reference_run, "read_result", lambda path: here)
    assert verify(tmp_path) == code
    assert calls == [(reference_config(), tmp_path)]
    torch = f"  torch is 1.0 here and {reference.versions['torch']} in the reference"
    assert capsys.readouterr().out.strip().split("\n") == [*lines, torch]
