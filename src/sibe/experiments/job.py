"""A run as a process of its own: how it is started, where its output goes, why it ended.

Both engines start the same command with the same environment, so a run cannot tell them apart
and gives the same csv files under either. Everything about a run that is not in its directory
lies beside it: ``seed1.log`` (its output) and ``seed1.failed`` (why it was given up).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sibe.errors import UserError, printable
from sibe.storage.atomic import make_folder
from sibe.storage.contained_file import open_file

# -P: a file in the working directory must not be taken for a module.
WORKER = ("-P", "-m", "sibe.experiments.worker")
"""What Python is told to run."""
_GRACE = 5.0  # seconds between asking a process to end and ending it
_TAIL = 4096  # bytes of a log that hold its last line
_LONGEST = 300


@dataclass(frozen=True)
class Job:
    """A run to be done; plain values only, so that it travels to another machine."""

    name: str
    path: Path
    """absolute: another machine has another working directory"""
    root: Path
    """of the suite, made beforehand: where it is missing, no file system is shared"""
    config: dict[str, Any]
    command: tuple[str, ...]
    """what the user typed, for meta.json"""

    @property
    def log(self) -> Path:
        """The output of all its processes, oldest first."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def failed(self) -> Path:
        """The file that says why the run was given up."""
        return self.path.with_name(f"{self.path.name}.failed")


def start(job: Job, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start the process of ``job``; ``env`` is added to this process's environment.

    Call this from the main thread: the child ends with the thread that started it.
    """
    if not job.root.is_dir():
        raise UserError(
            f"{os.uname().nodename} does not see {job.root}: "
            "--root must be on a file system that all machines share"
        )
    make_folder(job.path.parent)
    request = {
        "parent": os.getpid(),
        "path": str(job.path),
        "config": job.config,
        "command": job.command,
    }
    with open_file(job.log, "a+b", within=job.log.parent) as log:
        log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {os.uname().nodename}\n".encode())
        log.flush()
        process = subprocess.Popen(
            [sys.executable, *WORKER],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **_thread_env(job.config["threads"]), **(env or {})},
            start_new_session=True,  # a Ctrl-C is for us, who then end our children in order
        )
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it is gone already; its exit code tells
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
    return process


def _thread_env(threads: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Ask the processes to end, and see to it; a run can be ended at any instant."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _GRACE
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def why_it_ended(job: Job, code: int) -> str | None:
    """Return None for a good end, else the reason in one line."""
    if code == 0:
        return None
    if code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"exit code {code}: {last_line(job.log)}"


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty, cut to a readable length."""
    try:
        with open_file(log, within=log.parent) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError as error:
        return f"no log ({error.strerror})"
    except UserError as error:
        return str(error)
    said = [line.strip() for line in lines if line.strip()]
    return printable(said[-1].removeprefix("sibe: ")[:_LONGEST]) if said else "no output"


def run_to_end(job: Job) -> str | None:
    """Do ``job`` and return why it failed, None if it did not: the task that Ray is given."""
    try:
        process = start(job)
    except (UserError, OSError) as error:
        return str(error)
    try:
        # Not process.wait(): a canceled task is told between two lines of Python.
        while process.poll() is None:
            time.sleep(0.1)
    except BaseException:
        end([process])
        raise
    return why_it_ended(job, process.returncode)
