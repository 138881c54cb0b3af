"""How many CPU threads learning gets, who decided it, and whether the machine has them to give."""

from __future__ import annotations

import os
from typing import NamedTuple

from sibe.config.schema import MAX_THREADS, RunConfig
from sibe.logs.amounts import count
from sibe.training.portable import FLAG, PORTABLE

_VARIABLE = "OMP_NUM_THREADS"


class Threads(NamedTuple):
    """A number of threads and where it comes from."""

    number: int
    source: str

    def __str__(self) -> str:
        """Return e.g. "2 threads (all cores)"."""
        return f"{count(self.number, 'thread')} ({self.source})"


def choose_threads(asked: int = 0, begun_with: int = 0) -> Threads:
    """Return ``asked``, else what the run was begun with, else OMP_NUM_THREADS, else all cores.

    A run keeps its number for life: another one changes the order of summation, and so the result.
    """
    if begun_with and asked in (0, begun_with):
        return Threads(begun_with, "as the run was begun with")
    if asked:
        return Threads(asked, "--threads")
    number = environment_threads()
    if number is not None:
        return Threads(number, _VARIABLE)
    return Threads(len(os.sched_getaffinity(0)), "all cores")


def threads_of(config: RunConfig, begun_with: int = 0) -> Threads:
    """Return what a run gets; what is portable has one thread, as sums of two depend on both."""
    if config.deterministic == PORTABLE:
        return Threads(1, f"{FLAG} {PORTABLE}")
    return choose_threads(config.threads, begun_with)


def environment_threads() -> int | None:
    """Return what OMP_NUM_THREADS says; None if it is unset, or no number that OpenMP takes."""
    first = os.environ.get(_VARIABLE, "").split(",")[0].strip()  # a list is for nested teams
    number = int(first) if first.isascii() and first.isdigit() else 0
    return number if 1 <= number <= MAX_THREADS else None


def busy_note() -> str | None:
    """Return a line of warning if more is running on this machine than it has cores."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= cores:
        return None
    return (
        f"note: this machine is busy (load {load:.1f} on {count(cores, 'core')}): "
        "learning may be several times slower"
    )
