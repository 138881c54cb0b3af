"""The suites as text: runs, updates, and how long they would take on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sibe.experiments.estimate import Speed, Stopwatch, run_seconds
from sibe.experiments.plan import build_config, count_updates, missing_methods, stand_in
from sibe.experiments.request import Overrides
from sibe.experiments.suites import Run, Suite
from sibe.logs.console import duration
from sibe.methods.registry import method_names
from sibe.training.run import resolve


def describe_suites(
    suites: Sequence[Suite], changes: Overrides, watch: Stopwatch | None, *, jobs: int = 1
) -> str:
    """Return a line per suite; without ``watch`` there is no estimate."""
    width = max(len(suite.name) for suite in suites)
    lines = [f"{'suite':{width}s} {'runs':>5s} {'updates':>11s} {'time':>9s}  what it is"]
    missing: list[str] = []
    for suite in suites:
        runs = suite.runs()
        missing += [name for name in missing_methods(runs) if name not in missing]
        updates = sum(count_updates(suite, run, changes) for run in runs)
        speed = suite_speed(suite, runs, changes, watch)
        time = _time(sum(_seconds(suite, run, changes, speed) for run in runs) / jobs)
        lines.append(
            f"{suite.name:{width}s} {len(runs):5d} {updates:11d} {time:>9s}  {suite.about}"
        )
    return "\n".join([*lines, *_notes(watch, jobs, missing)])


def describe_suite(
    suite: Suite,
    runs: Sequence[Run],
    changes: Overrides,
    watch: Stopwatch | None,
    *,
    jobs: int = 1,
) -> str:
    """Return a line per task and background, and the sum; ``runs`` is a part of ``suite``."""
    speed = suite_speed(suite, runs, changes, watch)
    cells = sorted(runs, key=_cell)
    width = max(len(" ".join(_cell(run))) for run in runs)
    lines = [
        f"{suite.name} (preset {changes.preset or suite.preset}): {suite.about}",
        f"methods: {', '.join(dict.fromkeys(run.variant.name for run in runs))}",
        f"seeds: {', '.join(map(str, dict.fromkeys(run.seed for run in runs)))}",
        f"{'':{width}s} {'runs':>5s} {'updates each':>13s} {'time each':>10s}",
    ]
    for cell, members in groupby(cells, _cell):
        group = list(members)
        each = count_updates(suite, group[0], changes)
        time = _time(_seconds(suite, group[0], changes, speed))
        lines.append(f"{' '.join(cell):{width}s} {len(group):5d} {each:13d} {time:>10s}")
    updates = sum(count_updates(suite, run, changes) for run in runs)
    total = _time(sum(_seconds(suite, run, changes, speed) for run in runs) / jobs)
    lines.append(f"together: {len(runs)} runs, {updates} updates, time {total}")
    return "\n".join([*lines, *_notes(watch, jobs, missing_methods(runs))])


def suite_speed(
    suite: Suite, runs: Sequence[Run], changes: Overrides, watch: Stopwatch | None
) -> Speed | None:
    """Measure the first of ``runs`` that this installation can do."""
    if watch is None:
        return None
    known = (run for run in runs if run.variant.method in method_names())
    run = next(known, stand_in(runs[0]))
    return watch.speed(resolve(build_config(suite, run, changes)))


def _cell(run: Run) -> tuple[str, str]:
    return run.task, run.background


def _seconds(suite: Suite, run: Run, changes: Overrides, speed: Speed | None) -> float:
    if speed is None:
        return 0.0
    return run_seconds(build_config(suite, stand_in(run), changes), speed)


def _time(seconds: float) -> str:
    return duration(seconds) if seconds else "-"


def _notes(watch: Stopwatch | None, jobs: int, missing: Sequence[str]) -> list[str]:
    notes = []
    if watch is not None:
        at_a_time = "one run" if jobs == 1 else f"{jobs} runs"
        notes.append(
            f"time: {at_a_time} at a time on this machine as busy as it is now, "
            "from a few updates of one run"
        )
    if missing:
        notes.append(f"not in this version of sibe: {', '.join(missing)}")
    return notes
