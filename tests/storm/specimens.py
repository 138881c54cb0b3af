"""The undamaged runs, export, bank and report that every case starts from or is compared with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sibe.logs.video import write_mp4
from storm.fingerprint import fingerprint
from storm.folder_state import folder_state
from storm.warm_process import Ended, Instant, run

# 20 decisions per episode: three episodes take two seconds.
SHORT = (
    *("--preset", "debug", "--env-steps", "3000", "--action-repeat", "50", "--threads", "1"),
    *("--initial-steps", "5", "--eval-episodes", "1"),
)
NOISE = ("--method", "none", "--background", "noise")
NEWEST, OLDER = "checkpoint_000002000.pt", "checkpoint_000001000.pt"
"""The checkpoints of the run that was killed."""


class Specimens:
    """Makes everything once, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"
        self.output.mkdir(parents=True)
        self.videos = self._film()
        self.bank = folder / "bank"
        self.prepared = self.do(*self.prepare_line(self.bank), watched=folder)
        self.run, self.other = folder / "runs" / "a", folder / "runs" / "b"
        self.run.parent.mkdir()
        self.trained = self.do(*self.train_line(NOISE, self.run), watched=self.run)
        self.do(*self.train_line((*NOISE, "--seed", "2"), self.other))
        self.fingerprint = fingerprint(self.run)
        self.killed = self._kill_before_the_last_checkpoint()
        self.export = folder / "export"
        self.exported = self.do(*self.export_line(self.export), watched=folder)
        self.played = self.do(*self.eval_line(self.export))
        self.report = folder / "report"
        self.reported = self.do(*self.report_line(self.run.parent, self.report), watched=folder)
        self.report_numbers = numbers(self.report)

    def do(self, *args: object, watched: Path | None = None) -> Ended:
        """Run a command that must succeed."""
        ended = run(args, self.output, watched=watched)
        assert ended.code == 0, f"sibe {' '.join(map(str, args))}: {ended}"
        return ended

    def train_line(self, flags: Sequence[str], out: Path) -> tuple[object, ...]:
        """Return the command that trains one of the runs."""
        return ("train", *SHORT, *flags, "--out", out)

    def export_line(self, out: Path) -> tuple[object, ...]:
        """Return the command that exports the run."""
        return ("export", self.run, "--out", out, "--episodes", "1", "--device", "cpu")

    def prepare_line(self, out: Path) -> tuple[object, ...]:
        """Return the command that makes the bank."""
        return ("videos", "prepare", self.videos, "--out", out, "--size", "32")

    @staticmethod
    def report_line(runs: Path, out: Path) -> tuple[object, ...]:
        """Return the command that reports on runs."""
        return ("report", runs, "--out", out)

    @staticmethod
    def eval_line(policy: Path) -> tuple[object, ...]:
        """Return the command that plays an episode."""
        return ("eval", policy, "--episodes", "1", "--device", "cpu")

    def _film(self) -> Path:
        videos, rng = self.folder / "videos", np.random.default_rng(0)
        videos.mkdir()
        for name in ("a", "b", "c"):
            start = rng.integers(0, 200, (48, 64, 3))
            frames = [(start + 3 * t).astype(np.uint8) for t in range(8)]
            write_mp4(videos / f"{name}.mp4", frames, 10)
        return videos

    def _kill_before_the_last_checkpoint(self) -> Path:
        """Return a run with two checkpoints, and with rows and an episode that came after them."""
        names = list(self.trained.operations)
        last = next(i for i, name in enumerate(names, 1) if "rename 'checkpoint_000003" in name)
        killed = self.folder / "killed" / "run"
        killed.parent.mkdir()
        line = self.train_line(NOISE, killed)
        ended = run(line, self.output, watched=killed, kill=Instant(operation=last))
        assert ended.code == -9, ended
        kept = sorted(path.name for path in (killed / "checkpoint").glob("*.pt"))
        assert kept == [OLDER, NEWEST], kept
        return killed

    @staticmethod
    def copy(what: Path, to: Path) -> Path:
        """Return a copy of a specimen."""
        shutil.copytree(what, to, symlinks=True)
        return to


def numbers(report: Path) -> dict[str, str]:
    """Return the tables of a report; its page also has videos, which carry no checksum."""
    return {
        name: what
        for name, what in folder_state(report).items()
        if name.endswith((".csv", ".md", ".tex"))
    }


def same_config(folder: Path, whole: Path) -> bool:
    """Tell whether both folders have the same config.json, but for spaces and order."""
    one, other = (json.loads((f / "config.json").read_bytes()) for f in (folder, whole))
    return bool(one == other)
