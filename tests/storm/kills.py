"""SIGKILL at random instants: whatever was killed, the same command again ends as if never."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import psutil

from storm.case import Case, FailedCase, Outcome, Result, check_ending
from storm.fingerprint import fingerprint
from storm.folder_state import folder_state, is_temporary
from storm.specimens import NOISE, Specimens
from storm.warm_process import Ended, Instant, run

_SUITE = ("suite", "run", "smoke", "--methods", "none", "--backgrounds", "clean")
_TIMEOUT = 600.0  # a suite starts many processes, each of which imports torch
_LINKED = 20.0  # seconds within which the processes of a killed suite must have ended


def cases(specimens: Specimens) -> list[Case]:
    """Return chains of kills, up to six in each, for every command that writes."""
    video = ("--method", "sibe", "--background", "video", "--clips", str(specimens.bank))
    chains: list[tuple[str, int, Callable[[Path, random.Random], Result]]] = [
        ("train", 24, partial(_train, specimens, NOISE)),
        ("train on video", 10, partial(_train, specimens, video)),
        ("export", 8, partial(_export, specimens)),
        ("export over an earlier one", 5, partial(_export, specimens, earlier=True)),
        ("videos prepare", 8, partial(_prepare, specimens)),
        ("videos prepare over an earlier one", 5, partial(_prepare, specimens, earlier=True)),
        ("report", 8, partial(_report, specimens)),
        ("suite", 4, partial(_suite, specimens, "local")),
        ("suite on Ray", 2, partial(_suite, specimens, "ray")),
    ]
    return [
        Case("kill", kind, f"kill/{kind.replace(' ', '-')}/{number}", do)
        for kind, chains_of_kind, do in chains
        for number in range(chains_of_kind)
    ]


def _draw(chance: random.Random, whole: Ended) -> Instant:
    if whole.operations and chance.random() < 0.5:
        return Instant(operation=chance.randint(1, len(whole.operations)))
    return Instant(seconds=chance.uniform(0.0, 0.8 * whole.seconds))  # the load may be less now


def _chain(
    line: Sequence[object],
    work: Path,
    chance: random.Random,
    whole: Ended,
    after_kill: Callable[[], None] = lambda: None,
    *,
    most: int = 6,
    group: bool = True,
) -> Result:
    """Kill the command up to ``most`` times, then let it finish.

    Args:
        line: the command.
        work: the folder that it works in.
        chance: draws the instants.
        whole: how it ended when nothing happened to it, for how long it takes.
        after_kill: looks at what the kill has left.
        most: kills; fewer if it finishes before an instant comes.
        group: kill its children too.
    """
    instants: list[str] = []
    for _ in range(chance.randint(3, most)):
        instant = _draw(chance, whole)
        ended = run(line, work.parent, watched=work, kill=instant, timeout=_TIMEOUT, group=group)
        if ended.code != -9:
            check_ending(ended)
            break
        instants.append(str(instant))
        after_kill()
    ended = run(line, work.parent, watched=work, timeout=_TIMEOUT)
    check_ending(ended)
    if ended.code:
        raise FailedCase(f"after kills at {', '.join(instants)}: {ended.err.strip()}")
    return Result(Outcome.IDENTICAL, f"killed at {', '.join(instants)}", len(instants))


def _train(
    specimens: Specimens, flags: tuple[str, ...], work: Path, chance: random.Random
) -> Result:
    out = work / "work" / "run"
    out.parent.mkdir()
    result = _chain(specimens.train_line(flags, out), out, chance, specimens.trained)
    if fingerprint(out) != _unharmed_run(specimens, flags):
        raise FailedCase(f"{result.note}: the run ended differently")
    _no_leftovers(out, result)
    if not (out / "curve.png").exists() or not list((out / "video").glob("*.mp4")):
        raise FailedCase(f"{result.note}: the picture or the video is missing")
    return result


@functools.cache
def _unharmed_run(specimens: Specimens, flags: tuple[str, ...]) -> str:
    if flags == NOISE:
        return specimens.fingerprint
    out = specimens.folder / "unharmed_run"
    specimens.do(*specimens.train_line(flags, out))
    return fingerprint(out)


def _no_leftovers(folder: Path, result: Result) -> None:
    left = [name for name in folder_state(folder) if is_temporary(name)]
    if left:
        raise FailedCase(f"{result.note}: {', '.join(left)} was left behind")


def _make_folder(
    line: tuple[object, ...],
    whole: Path,
    unharmed: Ended,
    work: Path,
    chance: random.Random,
    *,
    earlier: bool,
) -> Result:
    """Kill a command that makes a folder, whole or not at all, perhaps in place of an earlier one.

    Args:
        line: the command; the folder it makes is called as ``whole`` is.
        whole: the folder that it makes when nothing happens.
        unharmed: how it ended then.
        work: the case's folder.
        chance: the case's randomness.
        earlier: whether there is an earlier folder.
    """
    place, expected = work / "work", folder_state(whole)
    out = place / whole.name
    place.mkdir()
    if earlier:
        shutil.copytree(whole, out)

    def after_kill() -> None:
        there = [folder_state(p) for p in place.iterdir() if p == out or p.suffix == ".old"]
        if earlier and not there:
            raise FailedCase("the earlier folder is gone")
        if any(state != expected for state in there):
            raise FailedCase("there is a folder that is not whole")

    result = _chain((*line, "--overwrite"), place, chance, unharmed, after_kill)
    left = sorted(path.name for path in place.iterdir())
    if left != [out.name] or folder_state(out) != expected:
        raise FailedCase(f"{result.note}: it differs, or something is left beside it: {left}")
    return result


def _export(
    specimens: Specimens, work: Path, chance: random.Random, *, earlier: bool = False
) -> Result:
    line, unharmed = specimens.export_line(work / "work" / "export"), specimens.exported
    return _make_folder(line, specimens.export, unharmed, work, chance, earlier=earlier)


def _prepare(
    specimens: Specimens, work: Path, chance: random.Random, *, earlier: bool = False
) -> Result:
    line, unharmed = specimens.prepare_line(work / "work" / "bank"), specimens.prepared
    return _make_folder(line, specimens.bank, unharmed, work, chance, earlier=earlier)


def _report(specimens: Specimens, work: Path, chance: random.Random) -> Result:
    out = work / "work" / "report"
    out.parent.mkdir()
    line = specimens.report_line(specimens.run.parent, out)
    result = _chain(line, out, chance, specimens.reported)
    if folder_state(out) != folder_state(specimens.report):
        raise FailedCase(f"{result.note}: the report differs: {sorted(os.listdir(out))}")
    return result


def _suite(specimens: Specimens, engine: str, work: Path, chance: random.Random) -> Result:
    """Kill the suite's own process; those of its runs must end by themselves."""
    root = work / "work" / "root"
    root.parent.mkdir()
    line = (*_SUITE, "--engine", engine, "--root", root)
    unharmed = _unharmed_suite(specimens)

    def after_kill() -> None:
        deadline = time.monotonic() + _LINKED
        while using := _processes_of(root):
            if time.monotonic() > deadline:
                raise FailedCase(f"processes go on {_LINKED:g} s after the kill: {using}")
            time.sleep(0.1)

    result = _chain(line, root, chance, unharmed, after_kill, most=4, group=False)
    for run_ in _suite_runs(_suite_root(specimens)):
        if fingerprint(root / run_) != fingerprint(_suite_root(specimens) / run_):
            raise FailedCase(f"{result.note}: {run_} ended differently")
        _no_leftovers(root / run_, result)
    return result


def _suite_root(specimens: Specimens) -> Path:
    return specimens.folder / "suite"


def _suite_runs(root: Path) -> list[Path]:
    return [path.parent.relative_to(root) for path in sorted(root.rglob("config.json"))]


@functools.cache
def _unharmed_suite(specimens: Specimens) -> Ended:
    ended = specimens.do(*_SUITE, "--root", _suite_root(specimens))
    assert len(_suite_runs(_suite_root(specimens))) == 2
    return ended


def _processes_of(root: Path) -> list[int]:
    """Return the processes that hold a lock, or any file, of the folder ``root``."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(str(root) in os.readlink(f) for f in Path(f"/proc/{process.pid}/fd").iterdir()):
                found.append(process.pid)
    return found
