"""What is asked of a suite: a slice of its grid, and what to change of its configs.

Each field's docstring is the help text of its command-line flag.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sibe.errors import UserError, nearest
from sibe.experiments.suites import Suite, SuiteRun


@dataclass(frozen=True)
class Slice:
    """A part of the grid; what is not named is taken whole."""

    tasks: tuple[str, ...] | None = None
    """Only these tasks."""
    methods: tuple[str, ...] | None = None
    """Only these methods, or variants of one (`sibe-no-reward`)."""
    backgrounds: tuple[str, ...] | None = None
    """Only these backgrounds."""
    seeds: tuple[int, ...] | None = None
    """Only these seeds."""


@dataclass(frozen=True)
class Overrides:
    """What to change of the suite's configs; a root holds runs of one set of them."""

    preset: str | None = None
    """Another preset: paper, cpu or debug."""
    env_steps: int | None = None
    """Simulator steps per run, action repeat included."""
    eval_every: int | None = None
    """Simulator steps between two evaluations."""
    eval_episodes: int | None = None
    """Episodes per evaluation."""
    sensors: tuple[str, ...] | None = None
    """What is observed: pixels, state (the robot's own joints and velocities) or both."""
    cameras: tuple[int, ...] | None = None
    """Indices of several cameras, in place of one."""
    clips: str | None = None
    """Clip bank for the video background, made by `sibe videos prepare` (default: generated)."""
    threads: int | None = None
    """CPU threads per run (default: the suite's number, else what the engine can give)."""
    device: str | None = None
    """cpu, cuda, … (default: a GPU if the engine gives one)."""


def select(suite: Suite, part: Slice) -> list[SuiteRun]:
    """Return the runs of ``part``; a name that the suite does not have is an error."""
    names = dict.fromkeys(name for v in suite.variants for name in (v.name, v.method))
    seeds = None if part.seeds is None else [str(seed) for seed in part.seeds]
    _refuse(suite, "task", part.tasks, suite.tasks)
    _refuse(suite, "method", part.methods, names)
    _refuse(suite, "background", part.backgrounds, suite.backgrounds)
    _refuse(suite, "seed", seeds, [str(seed) for seed in suite.seeds])
    return [
        run
        for run in suite.runs()
        if run.task in (part.tasks or suite.tasks)
        and run.background in (part.backgrounds or suite.backgrounds)
        and run.seed in (part.seeds or suite.seeds)
        and {run.variant.name, run.variant.method} & {*(part.methods or names)}
    ]


def _refuse(suite: Suite, kind: str, asked: Iterable[str] | None, has: Iterable[str]) -> None:
    there = list(has)
    if asked is None:
        return
    if not list(asked):  # a variable of a shell script that is not set must not mean everything
        raise UserError(f"--{kind}s names nothing: give some of {', '.join(there)}")
    for name in asked:
        if name not in there:
            raise UserError(
                f"suite {suite.name} has no {kind} {name!r}{nearest(name, there)} "
                f"(it has {', '.join(there)})"
            )
