"""The command line: one subcommand per verb, each a thin call of a function elsewhere.

A ``UserError`` becomes one line on standard error and exit code 2, Ctrl-C one and 130. Imports are
inside the verbs, so that `sibe --help` does not wait for torch and MuJoCo.
"""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass
from importlib.metadata import version

from sibe.cli.bench import Benchmark
from sibe.cli.demo import DemoCommand
from sibe.cli.doctor import Doctor
from sibe.cli.embed import Embed
from sibe.cli.evaluate import Evaluate
from sibe.cli.export import Export
from sibe.cli.ladder import LadderCommand
from sibe.cli.parsing import Group, parse
from sibe.cli.probe import Probe
from sibe.cli.report import Report
from sibe.cli.suite import SUITE
from sibe.cli.tasks import Tasks
from sibe.cli.verify import Verify
from sibe.cli.videos import VIDEOS
from sibe.cli.watch import WatchCommand
from sibe.errors import UserError
from sibe.training.interrupts import interruptible


@dataclass(frozen=True)
class Train:
    """Train an agent, or continue a run (`sibe train --help` lists every hyperparameter)."""


COMMANDS = Group(
    "Visual reinforcement learning that explores by task-relevant novelty. "
    "`sibe help COMMAND` explains a command, `sibe --version` prints the version.",
    {
        "train": Train,
        "eval": Evaluate,
        "watch": WatchCommand,
        "report": Report,
        "embed": Embed,
        "probe": Probe,
        "ladder": LadderCommand,
        "export": Export,
        "demo": DemoCommand,
        "doctor": Doctor,
        "verify": Verify,
        "tasks": Tasks,
        "videos": VIDEOS,
        "suite": SUITE,
        "bench": Benchmark,
    },
)


def _is_out_of_memory(error: BaseException) -> bool:
    # torch has a class of its own only for accelerators; its CPU allocator says it in words.
    words = ("can't allocate memory", "out of memory", "not enough memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _open_standard_streams() -> None:
    """Open those that were closed (``>&-``): a file opened later would take their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115


def main(args: list[str] | None = None) -> None:
    """Run the command line, once it is imported (`sibe.__main__`)."""
    args = sys.argv[1:] if args is None else args
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of ASCII only gets "?" for "×"
            stream.reconfigure(errors="replace")
    try:
        with interruptible(lambda: "stopped"):
            code = _run(args)
    except KeyboardInterrupt as stop:
        # If Ctrl-C hit the exec of a text (dataclasses use it), CPython would end the process by
        # the signal, whatever its exit code, unless another exec comes after it.
        exec("")
        print(f"sibe: {stop}", file=sys.stderr)
        code = 130
    except UserError as error:
        print(f"sibe: {error}", file=sys.stderr)
        code = 2
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        print("sibe: out of memory: use a smaller batch, width or --size", file=sys.stderr)
        code = 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        code = 141
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        print(f"sibe: {error.strerror or error}{where}", file=sys.stderr)
        code = 2
    sys.exit(code)


def _run(args: list[str]) -> int:
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    if args[:1] == ["train"]:  # its flags depend on the preset, the task and the method
        from sibe.cli.train import run_train

        return run_train(args[1:])
    if args == ["--version"]:
        print(f"sibe {version('sibe')}")
        return 0
    code: int = parse(COMMANDS, args or ["--help"]).run()
    return code
