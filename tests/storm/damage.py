"""Every kind of file and every kind of damage: noticed, named and repaired, or refused."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from storm import damages
from storm.case import Case, FailedCase, Outcome, Result, check_ending, reason
from storm.damages import Damage
from storm.fingerprint import fingerprint
from storm.folder_state import folder_state, is_temporary
from storm.specimens import NEWEST, OLDER, Specimens, numbers, same_config
from storm.warm_process import Ended, run

_CSV_FILES = ("train.csv", "eval.csv", "eval_episodes.csv")
# Nothing tells that there was a newer checkpoint than those there are, but the env step is said.
_SAYS = re.compile(
    r"damaged|missing|passed over|put back|left out|goes on without|is a link|is a folder|is a pipe"
    r"|is a device|is a socket|was changed|config.json asks for|agent at env_step 1000:"
)


class Reader(NamedTuple):
    """A command that reads files which may be damaged."""

    kind: str
    slug: str
    source: Path
    """what is copied, to be damaged"""
    inside: str
    """the folder in it that has the files"""
    files: tuple[str, ...]
    line: Callable[[Path, Path], tuple[object, ...]]
    """the command, from the copy and the case's folder"""
    is_whole: Callable[[Path, Path, Ended], bool]
    """tells, from the same two, whether the result is that of undamaged files"""


def cases(specimens: Specimens) -> list[Case]:
    """Return every file × every damage, for the commands that the file matters to."""
    made = []
    for reader in _readers(specimens):
        folders = reader.files[0] == "checkpoint"
        for name in reader.files:
            for kind, damage in (damages.OF_FOLDERS if folders else damages.OF_FILES).items():
                do = partial(_do, reader, name, damage)
                made.append(Case("damage", reader.kind, f"damage/{reader.slug}/{name}/{kind}", do))
    return made


def _readers(specimens: Specimens) -> list[Reader]:
    resumed = (
        *("config.json", "meta.json", ".lock", *_CSV_FILES),
        *(f"checkpoint/{name}" for name in (NEWEST, OLDER)),
        *(f"replay/episode_00000{number}.npz" for number in range(3)),
        "tensorboard/*",
    )
    reported = (
        *("config.json", "meta.json", *_CSV_FILES, "curve.png", "video/*"),
        "checkpoint/checkpoint_000003000.pt",
    )
    runs, killed, name = specimens.run.parent, specimens.killed, specimens.run.name

    def resume(copy: Path, work: Path) -> tuple[object, ...]:
        return ("train", "--resume", copy)

    def is_run(copy: Path, work: Path, ended: Ended) -> bool:
        return fingerprint(copy) == specimens.fingerprint

    def report(copy: Path, work: Path) -> tuple[object, ...]:
        return specimens.report_line(copy, work / "report")

    def is_report(copy: Path, work: Path, ended: Ended) -> bool:
        return numbers(work / "report") == specimens.report_numbers

    def play(copy: Path, work: Path) -> tuple[object, ...]:
        return specimens.eval_line(copy)

    def is_played_run(copy: Path, work: Path, ended: Ended) -> bool:
        return same_config(copy, killed) and ended.out == _played(specimens)

    def is_played_export(copy: Path, work: Path, ended: Ended) -> bool:
        weights = (folder / "model.safetensors" for folder in (copy, specimens.export))
        same = same_config(copy, specimens.export) and len({p.read_bytes() for p in weights}) == 1
        return same and ended.out == specimens.played.out

    def show(copy: Path, work: Path) -> tuple[object, ...]:
        return ("videos", "list", copy)

    def is_bank(copy: Path, work: Path, ended: Ended) -> bool:
        return ended.out == _listed(specimens) and folder_state(copy) == folder_state(bank)

    bank, export = specimens.bank, specimens.export
    policy = ("config.json", f"checkpoint/{NEWEST}")
    folders = ("checkpoint", "replay", "video", "tensorboard")
    return [
        Reader("train --resume", "resume", killed, ".", resumed, resume, is_run),
        Reader("train --resume, folders", "folders", killed, ".", folders, resume, is_run),
        Reader("report", "report", runs, name, reported, report, is_report),
        Reader("eval of a run", "run", killed, ".", policy, play, is_played_run),
        Reader("eval of an export", "export", export, ".", _names(export), play, is_played_export),
        Reader("videos list", "bank", bank, ".", _names(bank), show, is_bank),
    ]


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in folder.iterdir()))


@cache
def _played(specimens: Specimens) -> str:
    return specimens.do(*specimens.eval_line(specimens.killed)).out


@cache
def _listed(specimens: Specimens) -> str:
    return specimens.do("videos", "list", specimens.bank).out


def _do(reader: Reader, name: str, damage: Damage, work: Path, chance: random.Random) -> Result:
    copy = Specimens.copy(reader.source, work / reader.source.name)
    folder, outside = copy / reader.inside, work / "outside"
    path = next(folder.glob(name))
    uncounted = (str(path.relative_to(folder)), ".lock")
    before = folder_state(folder, uncounted)
    outside.mkdir()
    damage(path, outside, chance)
    elsewhere = folder_state(outside)
    ended = run(reader.line(copy, work), work)
    check_ending(ended)
    if folder_state(outside) != elsewhere:
        raise FailedCase("something outside of the folder was changed")
    if ended.code == 0:
        return _judge(ended, reader.is_whole(copy, work, ended))
    if _counted(folder_state(folder, uncounted)) != _counted(before):
        _check_nothing_is_lost(reader, path.relative_to(copy), copy, work, reason(ended))
    return Result(Outcome.REFUSED, reason(ended))


def _counted(state: dict[str, str]) -> dict[str, str]:
    return {name: what for name, what in state.items() if not is_temporary(name)}


def _check_nothing_is_lost(
    reader: Reader, name: Path, copy: Path, work: Path, refusal: str
) -> None:
    """A refused command has changed something: with the file put back, it must end as ever."""
    path, whole = copy / name, reader.source / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    (shutil.copytree if whole.is_dir() else shutil.copy)(whole, path)
    ended = run(reader.line(copy, work), work)
    check_ending(ended)
    if ended.code or not reader.is_whole(copy, work, ended):
        raise FailedCase(f"refused ({refusal}); with the file put back: {ended.out + ended.err!r}")


def _judge(ended: Ended, is_whole: bool) -> Result:
    said = "; ".join(line for line in ended.out.splitlines() if _SAYS.search(line))
    if is_whole:
        return Result(Outcome.REPAIRED if said else Outcome.IDENTICAL, said)
    if not said:
        raise FailedCase(f"the result differs and nothing says so: {ended.out[-300:]!r}")
    return Result(Outcome.SAID, said)
