"""Scores at one env step: what each run's evaluations up to there gave, per seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sibe.analysis.comparison import Study
from sibe.analysis.runs import Run
from sibe.analysis.statistics import mean_and_se
from sibe.analysis.variants import Variant
from sibe.errors import UserError


class Cell(NamedTuple):
    """One variant in one setting and task."""

    variant: Variant
    background: str
    task: str
    runs: list[Run]
    """those that have an evaluation at the step, by seed"""
    scores: list[float]
    """one per run"""

    @property
    def n(self) -> int:
        """Seeds."""
        return len(self.scores)

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return mean_and_se(self.scores)[0]

    @property
    def se(self) -> float:
        """Standard error of the mean; nan for one seed."""
        return mean_and_se(self.scores)[1]


def score_at(run: Run, env_step: int, last: int = 1) -> float | None:
    """Return the mean return of the ``last`` evaluations up to the one at ``env_step``.

    None if the run has no evaluation there, or fewer than ``last`` up to there.

    An evaluation starts with the first agent step that reaches its env step, so it may be as late
    as an agent step has env steps: the action repeat. An env that repeats actions itself has more,
    and not always as many: twice the mean is allowed.
    """
    frames, repeat = run.evals["frame"], run.config["env"]["action_repeat"]
    mean = np.max(frames / np.maximum(run.evals.get("step", frames), 1))
    most = 2 * mean if mean > repeat else repeat
    late = frames - env_step
    there = np.flatnonzero((late >= 0) & (late < most))
    if not there.size or there[0] + 1 < last:
        return None
    return float(np.mean(run.evals["episode_reward"][there[0] + 1 - last : there[0] + 1]))


def last_common_step(runs: Sequence[Run]) -> tuple[int, int]:
    """Return the last env step with an evaluation of every run, and how many runs have it.

    Where no step is common to all: the one that most runs have, the last of those.
    """
    steps = np.unique(np.concatenate([run.evals["frame"] for run in runs])).astype(int)
    counts = [sum(score_at(run, step) is not None for run in runs) for step in steps]
    best = max(range(len(steps)), key=lambda i: (counts[i], i))
    return int(steps[best]), counts[best]


def cells_at(study: Study, env_step: int, last: int = 1) -> list[Cell]:
    """Return every variant, setting and task with at least one score (``score_at``).

    Raises:
        UserError: if no run has one.
    """
    cells = []
    for background in study.backgrounds:
        for task in study.tasks(background):
            for variant in study.variants:
                runs = study.select(variant, background, task)
                scored = [(run, score_at(run, env_step, last)) for run in runs]
                known = [(run, score) for run, score in scored if score is not None]
                if known:
                    there, scores = zip(*known, strict=True)
                    cells.append(Cell(variant, background, task, list(there), list(scores)))
    if not cells:
        steps = np.unique(np.concatenate([run.evals["frame"] for run in study.runs])).astype(int)
        near = steps[np.argmin(np.abs(steps - env_step))]
        if any(score_at(run, env_step) is not None for run in study.runs):
            raise UserError(
                f"no run has {last} evaluations up to env step {env_step}: lower --last"
            )
        raise UserError(
            f"no run was evaluated at env step {env_step}: the nearest --at is {near} "
            f"(evaluations go from {steps[0]} to {steps[-1]})"
        )
    return cells
