"""Which states of the disk are tried, and what a run must still have in each of them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from disk_model import Change, Disk, Fate, Sync, Tree, Write, fingerprint

CSV_FILES = ("train.csv", "eval.csv", "eval_episodes.csv")
QUIET = re.compile(r"/tensorboard/|tmp$")
"""Files that no run reads again: their content alone makes no new state."""
_CHECKPOINT = re.compile(r"(.*/)checkpoint/checkpoint_(\d+)\.pt")
_FATES: tuple[Fate, ...] = ("kept", "lost", "torn", "zeros")


@dataclass(frozen=True)
class Promise:
    """What the run had made safe before the power cut."""

    env_step: int
    """of the newest checkpoint; 0 for none"""
    logs: tuple[bytes, ...]
    """the csv files when that checkpoint was written"""


@dataclass(frozen=True)
class CrashState:
    """A disk after a power cut."""

    tree: Tree
    promise: Promise
    text: str


def crash_states(disk: Disk, first: Promise, rng: random.Random, draws: int) -> list[CrashState]:
    """Return the states in which a power cut may leave the disk, each once.

    At each instant: all pending operations lost, all kept, each one alone lost, each one alone
    kept, each write torn or zeros among the others kept and alone, and ``draws`` random ones. A
    state that can come from several instants must keep the promise of the last.

    Args:
        disk: what was done.
        first: what was safe before.
        rng: for the random states.
        draws: their number at each instant.
    """
    found: dict[str, CrashState] = {}
    for end, promise in enumerate(promises(disk, first)):
        for fates, text in _choices(disk, end, rng, draws):
            tree = disk.tree(end, fates)
            last = disk.operations[end - 1].text if end else "nothing"
            found[fingerprint(tree, unread=QUIET)] = CrashState(
                tree, promise, f"after {end} operations ({last}): {text}"
            )
    return list(found.values())


def _choices(
    disk: Disk, end: int, rng: random.Random, draws: int
) -> Iterator[tuple[dict[int, Fate], str]]:
    pending = disk.pending(end)
    lost: dict[int, Fate] = dict.fromkeys(pending, "lost")
    yield lost, "all that is pending is lost"
    yield {}, "all is kept"
    for number in pending:
        operation = disk.operations[number]
        if "/tensorboard/" in operation.text:
            continue
        yield {number: "lost"}, f"without: {operation.text}"
        yield {**lost, number: "kept"}, f"of what is pending only: {operation.text}"
        if isinstance(operation, Write):
            for fate in ("torn", "zeros"):
                yield {number: fate}, f"{fate}: {operation.text}"
                yield {**lost, number: fate}, f"of what is pending only, {fate}: {operation.text}"
    for draw in range(draws if len(pending) > 1 else 0):
        chosen = {n: rng.choice(_fates(disk, n)) for n in pending}
        yield chosen, f"random draw {draw}: {sorted(chosen.items())}"


def _fates(disk: Disk, number: int) -> tuple[Fate, ...]:
    return _FATES if isinstance(disk.operations[number], Write) else _FATES[:2]


def promises(disk: Disk, first: Promise) -> Iterator[Promise]:
    """Yield what is promised before the first operation and after each one.

    A checkpoint counts from the sync of its folder on, with which saving it ends. Whether that
    sync made it safe is what the states are to show.
    """
    promise, folder, new = first, None, None
    yield promise
    for number, operation in enumerate(disk.operations, 1):
        if isinstance(operation, Change) and operation.text.startswith("rename "):
            path = operation.text.split()[1].rpartition("/")[0] + f"/{operation.names[1][0]}"
            if match := _CHECKPOINT.fullmatch(path):
                folder, new = operation.folder, match
        elif isinstance(operation, Sync) and new is not None and operation.target == folder:
            tree = disk.tree(number, {})
            logs = tuple(tree.get(new[1] + name) or b"" for name in CSV_FILES)
            promise, new = Promise(int(new[2]), logs), None
        yield promise
