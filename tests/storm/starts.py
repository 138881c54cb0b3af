"""Short runs, one after the other, under glibc's checking allocator: ``make test-starts``.

A start of sibe once ended with "free(): corrupted unsorted chunks". Each start here is a process of
its own that imports everything, draws, learns for two episodes, evaluates and saves. Of a start
that does not end with exit code 0, its output is printed and, if it left a core dump and gdb is
installed, its stack.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_CHECKING = "libc_malloc_debug.so.0"
_COMMAND = (
    *("-m", "sibe", "train", "--preset", "debug", "--threads", "1", "--action-repeat", "50"),
    *("--env-steps", "2000", "--initial-steps", "5", "--eval-episodes", "1", "--out", "run"),
)
_SETTINGS = (("noise", "sibe"), ("clean", "none"), ("video", "sibe"), ("noise", "plan2explore"))
_SECONDS = 300


def main() -> int:
    """Start as often as the command line says; 0 if every start ended well."""
    parser = argparse.ArgumentParser(prog="python -m storm.starts", description=__doc__)
    parser.add_argument("--starts", type=int, default=1000)
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    env = {**os.environ, "LD_PRELOAD": _CHECKING, "MALLOC_CHECK_": "3", "OMP_NUM_THREADS": "1"}
    failed, began = 0, time.monotonic()
    for number in range(1, asked.starts + 1):
        background, method = _SETTINGS[number % len(_SETTINGS)]
        with tempfile.TemporaryDirectory(prefix="sibe-starts-") as folder:
            command = [sys.executable, *_COMMAND, "--background", background, "--method", method]
            ended = subprocess.run(
                command, cwd=folder, env=env, capture_output=True, text=True, timeout=_SECONDS
            )
            if ended.returncode:
                failed += 1
                print(f"start {number} ({background}, {method}): exit code {ended.returncode}")
                print(ended.stdout[-2000:], ended.stderr[-4000:], _stack(Path(folder)), sep="\n")
        if number % 25 == 0:
            minutes = (time.monotonic() - began) / 60
            print(f"{number} starts, {failed} failed, {minutes:.0f} minutes", flush=True)
    print(f"{asked.starts} starts, {failed} failed")
    return 1 if failed else 0


def _stack(folder: Path) -> str:
    """Return the stack of the core dump in ``folder``, if there is one."""
    core = next(folder.glob("core*"), None)
    if core is None or shutil.which("gdb") is None:
        return "no core dump, or no gdb to read it"
    gdb = ("gdb", "-batch", "-ex", "thread apply all bt", sys.executable, str(core))
    return subprocess.run(gdb, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
