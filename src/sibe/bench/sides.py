"""Two processes that work in turns: ours, and the reference's.

Each side is a process of its own because the two differ in what a process has only one of: memory
allocation (ours keeps its memory, as ``sibe train`` does) and Mesa's threads. They never work at
the same time unless asked to, and a ratio is taken within each pair of neighboring measurements:
what slows the machine down for a while slows both.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

Work = Callable[[], object]
_prepared: dict[str, Work] = {}  # of a worker process, by name


class Timed(NamedTuple):
    """A prepared piece of work on one side; ``units`` of it are done per call."""

    side: Side
    name: str
    units: int = 1

    def seconds(self, repeat: int) -> float:
        """Return the seconds per unit over ``repeat`` calls."""
        return self.side.seconds(self.name, repeat) / self.units


class Side:
    """A worker process.

    Args:
        threads: for torch.
        reference: leave the process as Python starts it, instead of as ``sibe train`` does.
    """

    def __init__(self, *, threads: int, reference: bool = False) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _start, (threads, reference))

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what ``function`` returns there."""
        return self._pool.submit(function, *args).result()

    def prepare(self, name: str, make: Callable[..., Work], *args: Any, units: int = 1) -> Timed:
        """Build ``make(*args)`` there, the work to be timed under ``name``."""
        self.call(_prepare, name, make, args)
        return Timed(self, name, units)

    def begin(self, name: str, repeat: int) -> Future[float]:
        """Start the work ``repeat`` times; the future holds the seconds per call."""
        return self._pool.submit(_time, name, repeat)

    def seconds(self, name: str, repeat: int = 1) -> float:
        """Do the work ``repeat`` times and return the seconds per call."""
        return self.begin(name, repeat).result()

    def forget(self) -> None:
        """Free everything that was prepared."""
        self.call(_prepared_clear)


def interleave(works: Mapping[str, Timed], pairs: int, least: float) -> dict[str, list[float]]:
    """Time all ``works`` in turns, ``pairs`` rounds of them; return seconds per unit by name.

    A first round warms up and decides how often each is called so that a measurement takes at
    least ``least`` seconds. Every other round goes backwards.
    """
    repeats = {name: _repeats(work, least) for name, work in works.items()}
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(pairs):
        for name in list(works)[:: 1 if number % 2 == 0 else -1]:
            times[name].append(works[name].seconds(repeats[name]))
    return times


def _repeats(work: Timed, least: float) -> int:
    cold = work.seconds(1) * work.units
    if cold > 4 * least:  # warm, it is long enough all the same
        return 1
    return max(1, math.ceil(least / max(work.seconds(1) * work.units, 1e-9)))


def median_ratio(above: list[float], below: list[float]) -> float:
    """Return the median over the pairs of ``above / below``."""
    return float(np.median(np.divide(above, below)))


def _start(threads: int, reference: bool) -> None:
    import torch

    from sibe.training.allocation import keep_memory
    from sibe.training.determinism import compute_with

    if reference:
        torch.set_num_threads(threads)
    else:
        keep_memory()
        compute_with(threads)


def _prepare(name: str, make: Callable[..., Work], args: tuple[Any, ...]) -> None:
    _prepared[name] = make(*args)
    gc.collect()
    gc.freeze()  # as in a run; the reference gains by it, too


def _prepared_clear() -> None:
    _prepared.clear()
    gc.unfreeze()


def _time(name: str, repeat: int) -> float:
    work = _prepared[name]
    start = time.perf_counter()
    for _ in range(repeat):
        work()
    return (time.perf_counter() - start) / repeat
