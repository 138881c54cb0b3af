"""One rule for the number of threads, and a warning where they have to share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sibe.cli import main as cli
from sibe.cli.doctor import check_torch
from sibe.experiments.local_engine import threads_per_job
from sibe.training.threads import busy_note, choose_threads, environment_threads


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six cores, idle, nothing in the environment."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 9.0, 9.0))


def test_who_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(choose_threads()) == "6 threads (all cores)"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert str(choose_threads()) == "1 thread (OMP_NUM_THREADS)"
    assert str(choose_threads(0, begun_with=4)) == "4 threads (as the run was begun with)"
    assert str(choose_threads(3)) == "3 threads (--threads)"
    assert threads_per_job(2) == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads_per_job(2) == 3


@pytest.mark.parametrize(
    ("value", "number"), [("2", 2), ("2,1", 2), ("0", None), ("-1", None), ("x", None), ("", None)]
)
def test_what_openmp_does_not_take_is_ignored(
    value: str, number: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert environment_threads() == number


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert busy_note() is None
    monkeypatch.setattr(os, "getloadavg", lambda: (9.25, 0.0, 0.0))
    assert "(load 9.2 on 6 cores)" in str(busy_note())


def test_doctor_and_train_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(os, "getloadavg", lambda: (9.25, 0.0, 0.0))
    assert "1 thread (OMP_NUM_THREADS); note: this machine is busy (load 9.2" in check_torch()
    with pytest.raises(SystemExit):
        cli.main(f"train --preset debug --camera 99 --out {tmp_path / 'run'}".split())
    said = capsys.readouterr().out
    assert "1 thread (OMP_NUM_THREADS)" in said and "this machine is busy" in said
