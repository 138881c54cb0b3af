"""The suites as text: runs, updates, and how long they would take on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from sibe.catalogue.registry import find_agent, method_names
from sibe.experiments.estimate import Speed, SpeedMeter, run_seconds
from sibe.experiments.plan import any_config, count_updates, missing_methods
from sibe.experiments.request import Overrides
from sibe.experiments.suites import Suite, SuiteRun
from sibe.logs.amounts import count
from sibe.logs.console import duration
from sibe.training.run import resolve


def describe_suites(
    suites: Sequence[Suite], changes: Overrides, watch: SpeedMeter | None, *, jobs: int = 1
) -> str:
    """Return a line per suite; without ``watch`` there is no estimate."""
    width = max(len(suite.name) for suite in suites)
    lines = [f"{'suite':{width}s} {'runs':>5s} {'updates':>11s} {'time':>9s}  what it is"]
    missing: list[str] = []
    for suite in suites:
        runs = suite.runs()
        missing += [name for name in missing_methods(runs) if name not in missing]
        updates = sum(count_updates(suite, run, changes) for run in runs)
        time = _time(sum(suite_seconds(suite, runs, changes, watch)) / jobs)
        lines.append(
            f"{suite.name:{width}s} {len(runs):5d} {updates:11d} {time:>9s}  {suite.about}"
        )
    return "\n".join([*lines, *_notes(watch, jobs, missing)])


def describe_suite(
    suite: Suite,
    runs: Sequence[SuiteRun],
    changes: Overrides,
    watch: SpeedMeter | None,
    *,
    jobs: int = 1,
) -> str:
    """Return a line per task and background, and the sum; ``runs`` is a part of ``suite``."""
    seconds = suite_seconds(suite, runs, changes, watch)
    cells = sorted(zip(runs, seconds, strict=True), key=_cell_of_first)
    width = max(len(" ".join(_cell(run))) for run in runs)
    lines = [
        f"{suite.name} (preset {changes.preset or suite.preset}): {suite.about}",
        f"methods: {', '.join(dict.fromkeys(run.variant.name for run in runs))}",
        f"seeds: {', '.join(map(str, dict.fromkeys(run.seed for run in runs)))}",
        f"{'':{width}s} {'runs':>5s} {'updates each':>13s} {'time each':>10s}",
    ]
    for cell, members in groupby(cells, _cell_of_first):
        group = list(members)
        each = _range([count_updates(suite, run, changes) for run, _ in group], str)
        time = _range([took for _, took in group], _time)
        lines.append(f"{' '.join(cell):{width}s} {len(group):5d} {each:>13s} {time:>10s}")
    updates = sum(count_updates(suite, run, changes) for run in runs)
    total = _time(sum(seconds) / jobs)
    together = f"{count(len(runs), 'run')}, {count(updates, 'update')}"
    lines.append(f"together: {together}, time {total}")
    return "\n".join([*lines, *_notes(watch, jobs, missing_methods(runs))])


def suite_seconds(
    suite: Suite, runs: Sequence[SuiteRun], changes: Overrides, watch: SpeedMeter | None
) -> list[float]:
    """Estimate each of ``runs`` from the first of them with the same kind of agent."""
    if watch is None:
        return [0.0] * len(runs)
    speeds: dict[str, Speed] = {}
    seconds = []
    for run in runs:
        config, kind = any_config(suite, run, changes), _agent(run)
        if kind not in speeds:
            speeds[kind] = watch.speed(resolve(config))
        seconds.append(run_seconds(config, speeds[kind]))
    return seconds


def _agent(run: SuiteRun) -> str:
    """Methods on SAC cost much the same; a standalone agent does not."""
    method = run.variant.method
    return find_agent(method).agent if method in method_names() else "sac"


def _cell(run: SuiteRun) -> tuple[str, str]:
    return run.task, run.background


def _cell_of_first(pair: tuple[SuiteRun, float]) -> tuple[str, str]:
    return _cell(pair[0])


def _range(values: Sequence[float], write: Callable[[Any], str]) -> str:
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low}–{high}"


def _time(seconds: float) -> str:
    return duration(seconds) if seconds else "-"


def _notes(watch: SpeedMeter | None, jobs: int, missing: Sequence[str]) -> list[str]:
    notes = []
    if watch is not None:
        at_a_time = "one run" if jobs == 1 else f"{jobs} runs"
        notes.append(
            f"time: {at_a_time} at a time on this machine as busy as it is now, from a few updates"
        )
    if missing:
        notes.append(f"not in this version of sibe: {', '.join(missing)}")
    return notes
