"""What an engine is, and the loop that takes a list of jobs through one to the end.

An engine only starts jobs and says how they ended. Skipping, retrying and reporting are here,
once for all engines. A failure counts against a run only if the run got no further: on machines
that are taken away again and again, a run that reaches a new checkpoint each time goes on.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple, Protocol

from sibe.experiments.job import Job
from sibe.logs.amounts import count
from sibe.storage.atomic import make_folder, write_atomic
from sibe.storage.checkpoint import list_steps
from sibe.storage.run_files import RunFiles

_LOOK = 1.0  # seconds that an engine may wait before it must answer


class Ended(NamedTuple):
    """A job that ran to its end, and why it failed (None: it did not)."""

    job: Job
    error: str | None


class Engine(Protocol):
    """Where jobs run."""

    capacity: int
    """how many jobs may be handed over at a time"""
    taken: str
    """what became of a job that was handed over: "started", or only "submitted"."""

    def start(self, job: Job) -> None:
        """Take a job."""

    def wait(self, seconds: float) -> list[Ended]:
        """Return the jobs that ended, waiting so long for the first one."""

    def stop(self) -> None:
        """End all jobs and leave nothing running."""


def is_done(job: Job) -> bool:
    """Tell whether the run has its last checkpoint, which is written after everything else."""
    return last_checkpoint(job) >= int(job.config["schedule"]["env_steps"])


def last_checkpoint(job: Job) -> int:
    """Return the env step of the newest checkpoint, 0 if there is none."""
    return max(list_steps(RunFiles(job.path).checkpoints), default=0)


def drive(
    jobs: Sequence[Job], engine: Engine, *, retries: int, say: Callable[[str], None]
) -> dict[str, str]:
    """Do all jobs that are not done yet; return why those that failed did, by name.

    Whatever ends this (the last job, an error, Ctrl-C), the engine is stopped.
    """
    waiting = deque(job for job in jobs if not is_done(job))
    total, done, running = len(jobs), len(jobs) - len(waiting), 0
    if done:
        say(f"{done} of {count(total, 'run')} {'is' if done == 1 else 'are'} finished already")
    tries = {job.name: _Tries(last_checkpoint(job)) for job in waiting}
    failed: dict[str, str] = {}
    try:
        while waiting or running:
            while waiting and running < engine.capacity:
                job = waiting.popleft()
                job.failed.unlink(missing_ok=True)
                engine.start(job)
                running += 1
                say(f"{job.name}: {engine.taken}")
            for job, error in engine.wait(_LOOK):
                running -= 1
                error = error or _unseen(job)
                if error is None:
                    done += 1
                    say(f"{job.name}: done ({done} of {total})")
                elif tries[job.name].another(last_checkpoint(job), retries):
                    say(f"{job.name}: {error}; it will be tried again")
                    waiting.append(job)
                else:
                    failed[job.name] = error
                    _note_failure(job, error)
                    say(f"{job.name}: FAILED, {error} (log: {job.log})")
    finally:
        engine.stop()
    return failed


class _Tries:
    """How often a run has failed without getting any further."""

    def __init__(self, reached: int) -> None:
        self._reached, self._failures = reached, 0

    def another(self, reached: int, retries: int) -> bool:
        self._failures = 0 if reached > self._reached else self._failures + 1
        self._reached = reached
        return self._failures <= retries


def _note_failure(job: Job, error: str) -> None:
    make_folder(job.failed.parent)
    write_atomic(job.failed, f"{error}\n".encode())


def _unseen(job: Job) -> str | None:
    if is_done(job):
        return None
    return "it ended well, but its last checkpoint is not seen here: --root must be shared"


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into the KeyboardInterrupt that Ctrl-C is (main thread only)."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
