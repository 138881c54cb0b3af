"""Resume a run from a state of its disk, in a forked process, and judge how that went."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from crash_states import CSV_FILES, CrashState
from disk_model import Tree
from run_records import without_wall_clock

_SECONDS = 120
_STARTED_AT = re.compile(r"(?:continuing|already finished) at env_step (\d+)")
GOOD = (
    "resumed: the same csv files",
    "resumed: the same csv files, a file repaired and named",
    "resumed: the same csv files, a damaged checkpoint named",
    "started anew: nothing was saved yet",
    "refused with the reason",
)


def write_tree(tree: Tree, folder: Path) -> None:
    """Make ``folder`` hold ``tree`` and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path, content in sorted(tree.items()):
        if content is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            (folder / path).write_bytes(content)


def resume(command: Sequence[str], log: Path) -> int:
    """Run the command line in a fork of this process; return its exit code, below 0 if killed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _run(command, log)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(command: Sequence[str], log: Path) -> None:
    from sibe.cli.main import main

    signal.alarm(_SECONDS)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    code = 70
    try:
        main(list(command))
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def judge(state: CrashState, code: int, text: str, run: Path, reference: Path) -> str:
    """Return what became of the run: one of ``GOOD``, or what is wrong."""
    if code == -signal.SIGALRM:
        return f"hung for {_SECONDS} seconds"
    if "Traceback" in text or code not in (0, 2):
        return f"crashed with exit code {code}"
    promise = state.promise
    if code == 2:
        reasons = [line for line in text.splitlines() if line.startswith("sibe: ")]
        if len(reasons) != 1:
            return "refused without a reason"
        return "refused what was safe" if promise.env_step else GOOD[4]
    match = _STARTED_AT.search(text)
    if (int(match[1]) if match else 0) < promise.env_step:
        return f"LOST the checkpoint of env step {promise.env_step}"
    for name, before in zip(CSV_FILES, promise.logs, strict=True):
        if not (run / name).read_bytes().startswith(before):
            return f"LOST rows of {name}"
        if without_wall_clock(run / name) != without_wall_clock(reference / name):
            named = "bit for bit" in text
            return f"ended otherwise, {'as it said' if named else 'SILENTLY'}"
    if not match:
        return GOOD[3]
    if "is passed over" in text:
        return GOOD[2]
    return GOOD[1] if "put back from the checkpoint" in text else GOOD[0]
