"""What docs/security.md promises, one case of each kind, through the command line alone.

Nothing of the package is imported, so the same file says what another version does:
``PYTHONPATH=OTHER/src pytest tests/storm/check_promises.py``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

SHORT = (
    *("--preset", "debug", "--method", "sibe", "--background", "noise", "--threads", "1"),
    *("--action-repeat", "50", "--initial-steps", "5", "--eval-episodes", "1"),
)
TRACEBACK = "Traceback (most recent call last)"
_PATIENCE = 240.0  # seconds, on a machine with other work

Done = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def line(*args: object) -> list[str]:
    return [sys.executable, "-m", "sibe", *map(str, args)]


def sibe(*args: object, **more: str) -> Done:
    return subprocess.run(
        line(*args), env=environment(**more), capture_output=True, text=True, timeout=_PATIENCE
    )


def refused(done: Done) -> str:
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("sibe: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's cache, in which the first command leaves compiled kernels."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    done = sibe("train", *SHORT, "--env-steps", 3000, "--out", out, XDG_CACHE_HOME=str(cache))
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run with an episode to go: its last checkpoint is gone."""
    copy = tmp_path / "runs" / "run"
    shutil.copytree(trained, copy)
    newest(copy).unlink()
    assert newest(copy).name == "checkpoint_000002000.pt"
    return copy


@pytest.fixture
def export(trained: Path, tmp_path: Path) -> Path:
    out = tmp_path / "export"
    done = sibe("export", trained, "--out", out, "--episodes", 1, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    return out


def newest(run: Path) -> Path:
    return max((run / "checkpoint").glob("*.pt"))


def edit(config: Path, section: str, field: str, value: object) -> None:
    values = json.loads(config.read_text())
    assert field in values[section]
    values[section][field] = value
    config.write_text(json.dumps(values))


def test_a_config_runs_no_code(run: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "evilmod.py").write_text(f"open({str(ran)!r}, 'w')\n")
    edit(run / "config.json", "env", "task", "evilmod:Foo-v0")
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    done = sibe("eval", run, "--episodes", 1, PYTHONPATH=path)
    assert not ran.exists()
    assert "--allow-import" in refused(done)


def test_a_truncated_kernel_is_compiled_again(trained: Path, cache: Path, tmp_path: Path) -> None:
    shutil.copytree(cache, tmp_path / "cache")
    (kernel,) = (tmp_path / "cache").rglob("*.so")
    whole = kernel.read_bytes()
    kernel.write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "run"
    more = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = sibe("train", *SHORT, "--env-steps", 3000, "--out", out, **more)
    assert done.returncode == 0, done
    assert kernel.read_bytes() == whole


def test_a_link_does_not_lead_out_of_a_run(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("not to be lost")
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").symlink_to(target)
    done = sibe("train", "--resume", run)
    assert target.read_text() == "not to be lost"
    assert ".lock" in refused(done)


def test_a_changed_digit_in_a_csv_is_put_back_and_named(run: Path, trained: Path) -> None:
    path, whole = run / "eval.csv", (trained / "eval.csv").read_text().splitlines()
    header, row, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, row.replace("1", "7", 1), *rest]))
    done = sibe("train", "--resume", run)
    assert done.returncode == 0, done.stderr
    assert "eval.csv" in done.stdout + done.stderr
    assert path.read_text().splitlines()[1] == whole[1]


def test_a_checkpoint_of_another_structure_counts_as_damaged(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    path = newest(run)
    header, _, payload = path.read_bytes().partition(b"\n")
    magic, _, text = header.split(b" ", 2)
    state = torch.load(io.BytesIO(payload), weights_only=True)
    del state["agent"]
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    values = {**json.loads(text), "bytes": len(payload)}
    values["sha256"] = hashlib.sha256(payload).hexdigest()
    text = json.dumps(values).encode() + b"\n"
    path.write_bytes(b" ".join((magic, hashlib.sha256(text).hexdigest().encode(), text)) + payload)
    done = sibe("train", "--resume", run)
    said = done.stdout + done.stderr
    assert TRACEBACK not in said
    assert done.returncode == 0, said
    assert "damaged" in said and "continuing at env_step 2000" in said


def test_an_absurd_size_is_refused_at_once(export: Path) -> None:
    good = processor_seconds("eval", export, code=0)
    edit(export / "config.json", "env", "size", 4096)
    # A refusal comes before the episode is played, if it comes at once.
    assert processor_seconds("eval", export, code=2) < good + 1


def processor_seconds(*args: object, code: int) -> float:
    """Return the processor time of a command, which other work on the machine does not change."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = sibe(*args, "--episodes", 1, "--device", "cpu")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == code, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Path]:
    """A run that a process is at."""
    out = tmp_path / "run"
    command = line("train", *SHORT, "--env-steps", 10**6, "--out", out)
    with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL) as process:
        end = time.monotonic() + _PATIENCE
        while not list((out / "checkpoint").glob("*.pt")) and time.monotonic() < end:
            assert process.poll() is None
            time.sleep(0.1)
        yield out
        still_there = process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert still_there


def test_a_deleted_lock_lets_nobody_in(going: Path) -> None:
    (going / ".lock").unlink()
    second = subprocess.Popen(
        line("train", *SHORT, "--env-steps", 10**6, "--out", going),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = second.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        second.kill()
        out, err = second.communicate()
    assert "continuing at" not in out
    refused(subprocess.CompletedProcess([], second.returncode, out, err))


def test_names_are_no_markup(trained: Path, tmp_path: Path) -> None:
    for name in "ab":
        copy = tmp_path / "runs" / name
        copy.mkdir(parents=True)
        shutil.copy(trained / "eval.csv", copy)
        shutil.copy(trained / "config.json", copy)
        edit(copy / "config.json", "env", "task", f"<script>{name}</script>")
    done = sibe("report", tmp_path / "runs", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "out" / "table.md").read_text()
    assert "script" in table and "<script" not in table


def test_what_a_killed_compilation_left_is_cleaned_up(tmp_path: Path) -> None:
    compiler, out = tmp_path / "cc", tmp_path / "run"
    compiler.write_text("#!/bin/sh\nkill -9 $PPID\n")
    compiler.chmod(0o755)
    command = ("train", *SHORT, "--env-steps", 1000, "--out", out)
    cache = str(tmp_path / "cache")
    assert sibe(*command, XDG_CACHE_HOME=cache, CC=str(compiler)).returncode == -signal.SIGKILL
    assert sibe(*command, XDG_CACHE_HOME=cache).returncode == 0
    left = [path for path in (tmp_path / "cache" / "sibe").rglob("*") if not any_inside(path)]
    assert [path.suffix for path in left] == [".so"], left


def any_inside(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())
