"""How far the runs of a suite are, from their files alone: no engine has to be asked.

done: the last checkpoint is there. running: a process holds the lock. failed: the engine gave it
up and left a note beside it. waiting: everything else, also a run that was interrupted.
"""

from __future__ import annotations

import fcntl
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sibe.errors import UserError
from sibe.experiments.job import Job, last_line
from sibe.experiments.plan import PlannedRun, as_stored
from sibe.logs.amounts import count
from sibe.logs.console import duration
from sibe.logs.csv_log import count_lines, read_csv
from sibe.storage.checkpoint import list_steps
from sibe.storage.contained_file import open_file
from sibe.storage.folder_lock import FolderLock
from sibe.storage.run_files import RunFiles

STATES = ("done", "running", "failed", "waiting")
_RECENT = 20  # training episodes that tell the present speed


class RunStatus(NamedTuple):
    """One run."""

    name: str
    state: str
    env_step: int
    """of the last finished episode"""
    env_steps: int
    """of the whole run"""
    eval_return: float
    """of the last evaluation; nan if there was none"""
    env_steps_per_second: float
    """lately, evaluations included; nan if no episode is finished"""
    note: str
    """why it failed"""

    @property
    def seconds_left(self) -> float:
        """Return the time to the end at its own speed; nan if that is unknown."""
        if self.state == "done":
            return 0.0
        return max(0, self.env_steps - self.env_step) / self.env_steps_per_second


def run_status(planned: PlannedRun) -> RunStatus:
    """Read the files of one run; a damaged one is described, not fatal."""
    files, name = RunFiles(planned.path), str(planned.run.directory)
    env_steps = planned.config.schedule.env_steps
    env_step, eval_return, speed = 0, math.nan, math.nan
    failed = _failed_note(planned)
    state, note = ("waiting", "") if failed is None else ("failed", failed)
    try:
        if files.config_json.exists():
            env_steps = max(env_steps, int(files.read_config()["schedule"]["env_steps"]))
        env_step, speed = _progress(files.train_csv)
        eval_return = _last_return(files.eval_csv)
    except (UserError, KeyError, TypeError, ValueError) as error:
        state, note = "failed", f"damaged: {error}"
    if max(list_steps(files.checkpoints), default=0) >= env_steps:
        state, note = "done", ""
    elif is_locked(planned.path):
        state = "running"
    return RunStatus(name, state, env_step, env_steps, eval_return, speed, note)


def _failed_note(planned: PlannedRun) -> str | None:
    job = Job("", planned.path, planned.path, as_stored(planned.config), ())
    return last_line(job.failed) if job.failed.exists() else None


def is_locked(path: Path) -> bool:
    """Tell whether a process, here or on another machine, works in the run directory."""
    files = RunFiles(path)
    try:
        # Shared, and given back at once: a run that starts this very moment tries again.
        with FolderLock(path) as folder:
            folder.take(shared=True)
        with open_file(files.lock, within=path) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, UserError):
        return False
    return False


def _has_rows(path: Path) -> bool:
    return count_lines(path) > 1


def _progress(path: Path) -> tuple[int, float]:
    if not _has_rows(path):
        return 0, math.nan
    table = read_csv(path)
    return int(table["frame"][-1]), recent_speed(table)


def recent_speed(training: Mapping[str, NDArray[np.float64]]) -> float:
    """Return env steps per second in the last episodes of a train.csv that has some."""
    lengths, fps = training["episode_length"][-_RECENT:], training["fps"][-_RECENT:]
    return float(lengths.sum() / (lengths / fps).sum())


def _last_return(path: Path) -> float:
    return float(read_csv(path)["episode_reward"][-1]) if _has_rows(path) else math.nan


def describe(runs: Sequence[RunStatus]) -> str:
    """Return the runs as a table and, below it, the sum."""
    width = max(len(run.name) for run in runs)
    lines = [f"{'run':{width}s} {'state':8s} {'env steps':>17s} {'return':>8s} {'left':>7s}"]
    for run in runs:
        steps = f"{run.env_step}/{run.env_steps}"
        value = "-" if math.isnan(run.eval_return) else f"{run.eval_return:.1f}"
        left = "" if run.state == "done" else _time(run.seconds_left)
        line = f"{run.name:{width}s} {run.state:8s} {steps:>17s} {value:>8s} {left:>7s}"
        lines.append(f"{line}  {run.note}".rstrip())
    return "\n".join([*lines, _summary(runs)])


def _summary(runs: Sequence[RunStatus]) -> str:
    counts = {state: sum(run.state == state for run in runs) for state in STATES}
    parts = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    text = f"{count(len(runs), 'run')}: {parts}"
    speeds = [run.env_steps_per_second for run in runs if run.env_steps_per_second > 0]
    if not speeds or counts["done"] == len(runs):
        return text
    typical = float(np.median(speeds))  # for runs that have none of their own yet
    left = sum(
        run.seconds_left
        if run.env_steps_per_second > 0
        else (run.env_steps - run.env_step) / typical
        for run in runs
    )
    at_a_time = max(1, counts["running"])
    return f"{text}; about {duration(left / at_a_time)} left with {at_a_time} at a time"


def _time(seconds: float) -> str:
    return "-" if math.isnan(seconds) else duration(seconds)
