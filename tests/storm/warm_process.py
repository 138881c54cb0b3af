"""``sibe`` commands in forks of this process, which has imported everything once.

A start costs seconds of imports, a fork milliseconds. No fork shares a GL context or threads with
another: nothing is built before the fork, and torch has one thread.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_IMPORTED_WHERE_NEEDED = (
    *("av.subtitles", "dm_control.suite", "OpenGL.GL", "fsspec", "typeguard"),
    *("matplotlib.pyplot", "matplotlib.backends.backend_svg", "torch.utils.tensorboard"),
)
_MUTATIONS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"}


class Instant(NamedTuple):
    """When a command is killed: after so many seconds, or right before a file operation."""

    seconds: float | None = None
    operation: int | None = None
    """counted from 1 over what is opened for writing, renamed, removed or made in a folder"""

    def __str__(self) -> str:
        return f"{self.seconds:.3f} s" if self.seconds is not None else f"op {self.operation}"


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    """exit code; negative for a signal"""
    out: str
    err: str
    seconds: float
    megabytes: int
    """most memory that it had"""
    timed_out: bool
    operations: tuple[str, ...]
    """file operations in the watched folder, each by its kind and the name of the file"""


def load() -> None:
    """Import all that the commands import, and limit torch to one thread."""
    os.environ.update(OMP_NUM_THREADS="1", MPLBACKEND="agg")
    import sibe
    from sibe.envs.rendering.gl import select_backend

    select_backend()  # before the simulator is imported
    for module in pkgutil.walk_packages(sibe.__path__, "sibe."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _IMPORTED_WHERE_NEEDED:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)  # imports torch's compiler
    gc.collect()
    gc.freeze()


def run(
    args: Sequence[object],
    folder: Path,
    *,
    watched: Path | None = None,
    kill: Instant | None = None,
    timeout: float = 120.0,
    group: bool = True,
) -> Ended:
    """Run ``sibe ARGS``, with its output in files of ``folder``.

    Args:
        args: the command line.
        folder: where its output is kept.
        watched: where file operations are counted.
        kill: when it is killed.
        timeout: seconds after which it is killed and counts as hanging.
        group: kill its children too.
    """
    counted = os.memfd_create("operations")
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_command([str(arg) for arg in args], folder, watched, kill, counted)
    delay = timeout if kill is None or kill.seconds is None else min(kill.seconds, timeout)
    descriptor = os.pidfd_open(child)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ended = bool(poll.poll(1000 * delay))
    seconds = time.monotonic() - began
    os.kill(child, signal.SIGKILL)  # it cannot be gone before it is waited for
    if group:
        with contextlib.suppress(ProcessLookupError):  # it had no time to make one
            os.killpg(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    os.close(descriptor)
    with os.fdopen(counted, "rb") as file:
        file.seek(0)
        operations = tuple(file.read().decode(errors="replace").splitlines())
    return Ended(
        os.waitstatus_to_exitcode(status),
        _read(folder / "stdout"),
        _read(folder / "stderr"),
        seconds,
        usage.ru_maxrss // 1024,
        not ended and delay == timeout,
        operations,
    )


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _be_command(
    args: list[str], folder: Path, watched: Path | None, kill: Instant | None, counted: int
) -> None:
    """Become the command; never returns."""
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, flags, 0o666), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["sibe", *args]
        if watched is not None:
            _count_operations(watched, None if kill is None else kill.operation, counted)
        from sibe.cli.main import main

        main(args)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        with contextlib.suppress(ValueError):  # closed after a broken pipe
            sys.stderr.flush()
        os._exit(code)


def _count_operations(watched: Path, last: int | None, counted: int) -> None:
    top, number = os.path.realpath(watched), 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal number
        if event == "open":
            writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if not writes:
                return
        elif event not in _MUTATIONS:
            return
        if not isinstance(args[0], (str, os.PathLike)):
            return
        if not os.path.abspath(os.fspath(args[0])).startswith(top):
            return
        number += 1
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(counted, f"{event} {os.path.basename(os.fspath(args[0]))!r}\n".encode())

    sys.addaudithook(hook)
