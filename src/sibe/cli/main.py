"""The command line: one subcommand per verb, each a thin call of a function elsewhere.

A ``UserError`` becomes one line on standard error and exit code 2. Imports are inside the verbs,
so that `sibe --help` does not wait for torch and MuJoCo.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import Positional, subcommand

from sibe.cli.bench import Benchmark
from sibe.cli.embed import Embed
from sibe.cli.evaluate import Evaluate
from sibe.cli.export import Export
from sibe.cli.ladder import LadderCommand
from sibe.cli.probe import Probe
from sibe.cli.report import Report
from sibe.cli.suite import SuiteCommand
from sibe.errors import UserError, nearest


@dataclass(frozen=True)
class Doctor:
    """Check this machine: each line is ok, or the command that fixes it."""

    preset: str = "cpu"
    """Preset whose replay must fit: paper, cpu or debug."""

    def run(self) -> int:
        """Print the checks; 0 if all is well, else 1."""
        from sibe.cli.doctor import examine

        return examine(self.preset)


@dataclass(frozen=True)
class Tasks:
    """List the tasks, or show the paper's six in their three visual settings as one picture."""

    picture: Path | None = None
    """Write the sheet of six tasks and three settings to this PNG file."""
    clips: Path | None = None
    """Clip bank for the video setting, made by `sibe videos prepare` (default: generated clips)."""
    size: int = 168
    """Height and width of each picture on the sheet, in pixels."""
    seed: int = 1
    """Which episodes are shown."""

    def run(self) -> int:
        """Print the list or write the sheet."""
        if self.picture is None:
            from sibe.envs.tasks import describe_tasks

            if self != Tasks():
                raise UserError("--size, --clips and --seed go with --picture FILE.png")

            print(describe_tasks())
            return 0
        from sibe.analysis.task_sheet import write_task_sheet

        write_task_sheet(self.picture, clips=self.clips, size=self.size, seed=self.seed)
        print(f"wrote {self.picture}")
        return 0


@dataclass(frozen=True)
class PrepareVideos:
    """Decode a folder of videos into a clip bank that training can use without a codec."""

    folder: Positional[Path]
    """Folder of videos (mp4, avi, webm, gif, …) or of folders of images; sub-folders named train
    and eval decide the split."""
    out: Path
    """Folder to write the bank to."""
    size: int = 84
    """Height and width of the stored frames, in pixels."""
    eval_fraction: float = 0.25
    """Share of the clips kept for evaluation."""
    max_frames: int | None = None
    """Keep at most this many frames of each clip (default: all)."""
    gray: bool = False
    """Keep the luminance only, as in DBC's protocol."""
    overwrite: bool = False
    """Replace a bank that is already there."""

    def run(self) -> int:
        """Decode, and say what the bank holds."""
        from sibe.envs.backgrounds.decode import prepare

        bank = prepare(
            self.folder,
            self.out,
            size=self.size,
            eval_fraction=self.eval_fraction,
            max_frames=self.max_frames,
            gray=self.gray,
            overwrite=self.overwrite,
        )
        for split in ("train", "eval"):
            clips = bank.clips(split)
            print(f"{split}: {len(clips)} clips, {sum(clip.frames for clip in clips)} frames")
        print(f"use it with --background video --clips {self.out}")
        return 0


@dataclass(frozen=True)
class ListVideos:
    """List the clips of a bank."""

    bank: Positional[Path]
    """A folder made by `sibe videos prepare`."""

    def run(self) -> int:
        """Print one line per clip."""
        from sibe.envs.backgrounds.clips import ClipBank

        bank = ClipBank.open(self.bank)
        for clip in dict.fromkeys((*bank.clips("train"), *bank.clips("eval"))):
            print(f"{clip.split:5s} {clip.frames:6d} frames  {clip.source}")
        return 0


@dataclass(frozen=True)
class Videos:
    """Clip banks for the natural-video setting."""

    action: (
        Annotated[PrepareVideos, subcommand("prepare")] | Annotated[ListVideos, subcommand("list")]
    )

    def run(self) -> int:
        """Do what the second word says."""
        return self.action.run()


@dataclass(frozen=True)
class Train:
    """Train an agent, or continue a run (`sibe train --help` lists every hyper-parameter)."""


Command = (
    Annotated[Train, subcommand("train")]
    | Annotated[Evaluate, subcommand("eval")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Embed, subcommand("embed")]
    | Annotated[Probe, subcommand("probe")]
    | Annotated[LadderCommand, subcommand("ladder")]
    | Annotated[Export, subcommand("export")]
    | Annotated[Doctor, subcommand("doctor")]
    | Annotated[Tasks, subcommand("tasks")]
    | Annotated[Videos, subcommand("videos")]
    | Annotated[SuiteCommand, subcommand("suite")]
    | Annotated[Benchmark, subcommand("bench")]
)


def parse(kind: Any, args: list[str], *, prog: str = "sibe", default: Any = None) -> Any:
    """Parse ``args`` into ``kind``; what tyro frames in a box becomes one line."""
    options = {} if default is None else {"default": default}
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return tyro.cli(
                kind, args=args, prog=prog, config=(tyro.conf.OmitSubcommandPrefixes,), **options
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(_one_line(printed.getvalue(), prog)) from None


def _one_line(box: str, prog: str) -> str:
    # A title, the message, and what may help, with rules between; tyro draws them as it can.
    lines = [re.sub(r"[╭╮╰╯│─]|^ *-+ *$", "", line).strip() for line in box.splitlines()]
    message, *more = re.split(r"\n{2,}", "\n".join(lines[1:]).strip() or f"bad line {box}")
    first, *rest = message.splitlines()
    message = " ".join([first, *(rest[:1] if first.endswith(":") else rest)])
    after = message.partition(": ")[2]
    for help_ in more:
        if help_.startswith("Available subcommands: "):
            names, word = help_.split(": ")[1].replace("\n", " "), re.split("[ ,]+", after)[0]
            return f"unknown command {word!r}{nearest(word, names.split(', '))} (there are {names})"
        if help_.startswith("Perhaps you meant:"):
            message += f"; did you mean {help_.split()[3]}?"
    return f"{message} (see {prog} --help)"


def _is_out_of_memory(error: BaseException) -> bool:
    # torch has a class of its own only for accelerators; its CPU allocator says it in words.
    words = ("can't allocate memory", "out of memory", "not enough memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def main(args: list[str] | None = None) -> None:
    """Run the command line; this is what `sibe` and `python -m sibe` call."""
    args = sys.argv[1:] if args is None else args
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of ASCII only gets "?" for "×"
            stream.reconfigure(errors="replace")
    try:
        if args[:1] == ["train"]:  # its flags depend on the preset, the task and the method
            from sibe.cli.train import run_train

            code = run_train(args[1:])
        elif args == ["--version"]:
            print(f"sibe {version('sibe')}")
            code = 0
        else:
            code = parse(Command, args or ["--help"]).run()
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
    except KeyboardInterrupt:
        print("sibe: stopped", file=sys.stderr)
        code = 130
    sys.exit(code)
