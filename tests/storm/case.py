"""One case of the storm: what it is called, what it does, and what it may come to."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from storm.warm_process import Ended


class Outcome(Enum):
    """What a case may come to; anything else is a ``FailedCase``."""

    IDENTICAL = "identical"
    """the result is that of a run to which nothing happened"""
    REPAIRED = "repaired and said"
    """likewise, and a line names the damage"""
    SAID = "differs and said"
    """the result differs, and a line says so"""
    REFUSED = "refused"
    """exit code 2, one line that says why, nothing lost"""
    ACCEPTED = "accepted"
    """a crafted file that is as good as any other: read, soon and in little memory"""


class Result(NamedTuple):
    """What a case came to."""

    outcome: Outcome
    note: str = ""
    """what a reader of the log may want to know: instants of kills, the reason of a refusal"""
    kills: int = 0


class FailedCase(Exception):
    """Something was lost or silent, or ended in a traceback or not at all."""


class Case(NamedTuple):
    """A case; its name alone decides, with the storm's seed, all that is random in it."""

    family: str
    """kill, damage or hostile"""
    kind: str
    """a row of the summary"""
    name: str
    do: Callable[[Path, random.Random], Result]
    """takes an empty folder and the case's own randomness"""


_MOST_MEGABYTES = 2000


def check_ending(ended: Ended) -> None:
    """Refuse an ending that no command may have: a traceback, a signal, a hang, no reason."""
    text = ended.out + ended.err
    if ended.timed_out:
        raise FailedCase(f"it hung ({ended.seconds:.0f} s): {_last_line(text)}")
    if "Traceback (most recent call last)" in text:
        raise FailedCase(f"traceback: {_last_line(text)}")
    if ended.code not in (0, 2):
        raise FailedCase(f"it ended with {ended.code}: {_last_line(text)}")
    if ended.code == 2 and (ended.err.count("\n") != 1 or not ended.err.startswith("sibe: ")):
        raise FailedCase(f"refused with other than one line: {ended.err[:300]!r}")
    if any(ord(c) < 32 and c not in "\n\r\t" for c in text):
        raise FailedCase(f"control characters on the terminal: {text[:300]!r}")
    if ended.megabytes > _MOST_MEGABYTES:
        raise FailedCase(f"it took {ended.megabytes} MB")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1][:300]


def reason(ended: Ended) -> str:
    """Return the line of a refusal."""
    return ended.err.strip().removeprefix("sibe: ")
