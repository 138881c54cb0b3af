"""Ctrl-C, whatever a library makes of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sibe.cli import main as cli
from sibe.envs.rendering import gl
from sibe.errors import Stopped, UserError
from sibe.training.interrupts import interruptible
from sibe.training.recorder import Recorder

DEBUG = ("train", "--preset", "debug", "--method", "none", "--threads", "1", "--env-steps", "3000")


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """Tests that run in the background of a shell have inherited a SIGINT that is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def swallow() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        press()


def describe() -> str:
    return "stopped here"


def test_it_is_stopped_with_a_description() -> None:
    with pytest.raises(Stopped, match=r"^stopped here$"), interruptible(describe):
        press()


def test_what_a_library_makes_of_it_is_it() -> None:
    with pytest.raises(Stopped, match=r"^stopped here$"), interruptible(describe):
        swallow()
        raise UserError("OpenGL does not start: apt-get install …")
    with pytest.raises(UserError, match="apt-get"), interruptible(describe):
        raise UserError("OpenGL does not start: apt-get install …")


def test_one_that_was_swallowed_is_found_later() -> None:
    with pytest.raises(Stopped), interruptible(describe) as interrupts:
        interrupts.check()
        swallow()
        interrupts.check()


def test_the_inner_description_is_kept_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped, match=r"^stopped here$"), interruptible(lambda: "outer"):
        outer = signal.getsignal(signal.SIGINT)
        with pytest.raises(UserError), interruptible(describe):
            raise UserError
        assert signal.getsignal(signal.SIGINT) == outer
        with interruptible(describe):
            press()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_of_the_caller_stays() -> None:
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    try:
        with interruptible(describe):
            press()
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed == [1]


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(list(args))
    return int(stop.value.code or 0)


def test_the_exit_code_is_130_wherever_it_hits() -> None:
    """CPython ends a process by the signal if an exec of a text was interrupted last."""
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from sibe.cli import main\n"
        "main._run = lambda args: exec('import os, signal; os.kill(os.getpid(), signal.SIGINT)')\n"
        "main.main([])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "sibe: stopped\n")


def test_the_command_line_can_be_stopped_while_it_is_imported() -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from sibe.__main__ import main\n"
        "class Finder:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'sibe.cli.main': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "sibe: stopped\n")


def test_while_opengl_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def create(backend: str) -> Any:
        swallow()
        raise ctypes.ArgumentError("argument 1: KeyboardInterrupt: ")

    monkeypatch.setattr(gl, "_create", create)
    monkeypatch.setattr(gl._local, "pid", None, raising=False)
    assert run(*DEBUG, "--out", str(tmp_path / "run")) == 130
    assert capsys.readouterr().err == "sibe: stopped while starting; nothing was saved yet\n"
    assert not (tmp_path / "run").exists()


def test_while_training_and_again_while_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(tmp_path / "run"))
    wanted = [800, 1600]
    real = Recorder.tick

    def tick(self: Recorder, env_step: int, agent_step: int, updates: int) -> None:
        real(self, env_step, agent_step, updates)
        if env_step == wanted[0]:
            press()

    monkeypatch.setattr(Recorder, "tick", tick)
    assert run(*DEBUG, *out) == 130
    error = capsys.readouterr().err
    assert error == "sibe: stopped at env step 800; nothing was saved yet\n"
    wanted.pop(0)
    assert run(*DEBUG, *out) == 130
    said, error = capsys.readouterr()
    then = "the same command continues from env step 1000"
    assert error == f"sibe: stopped at env step 1600; {then}\n"
    assert "continuing" not in said

    monkeypatch.setattr(Recorder, "rewind", lambda *_: press())
    assert run(*DEBUG, *out) == 130
    assert capsys.readouterr().err == f"sibe: stopped at env step 1000; {then}\n"
    monkeypatch.setattr("sibe.training.build.build_parts", lambda *_: press())
    assert run(*DEBUG, *out) == 130
    assert capsys.readouterr().err == f"sibe: stopped while starting; {then}\n"
