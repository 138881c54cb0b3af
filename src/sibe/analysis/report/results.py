"""Everything a report says, computed once: the files and the page only spell it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sibe.analysis.comparison import Study, load_study, setting_name
from sibe.analysis.report.aggregate import Aggregate, aggregate
from sibe.analysis.report.curve_figures import main_variants
from sibe.analysis.report.differences import Difference, differences
from sibe.analysis.report.paper_table import Reference, reference_scores
from sibe.analysis.report.score_table import ScoreTable, score_table, steps_text
from sibe.analysis.scores import Cell, cells_at, last_common_step, score_at
from sibe.analysis.statistics import FEWEST


@dataclass(frozen=True)
class Results:
    """The study and its numbers at one env step."""

    study: Study
    env_step: int
    """of the tables and aggregates"""
    last: int
    """how many evaluations up to there a score is the mean of"""
    cells: list[Cell]
    table: ScoreTable
    """methods, each task with the paper's row below it; no rows if there are ablations only"""
    ablations: ScoreTable
    """SIBE and its ablations; no rows if there are none"""
    aggregates: list[Aggregate]
    differences: list[Difference]
    references: list[Reference]
    """public scores for the tasks of the study"""
    notes: list[str]
    """what a reader must know to read the numbers rightly"""

    @property
    def when(self) -> str:
        """Where in the runs the scores are from: "at 100k env steps"."""
        place = f"{steps_text(self.env_step)} env steps"
        return f"at {place}" if self.last == 1 else f"over {self.last} evaluations up to {place}"


def compute_results(roots: Sequence[Path], at: int | None = None, last: int = 1) -> Results:
    """Read the runs below ``roots`` and compute the numbers at env step ``at``.

    A score is the mean of the ``last`` evaluations up to there.

    Raises:
        UserError: if there are no runs, or none was evaluated at ``at``.
    """
    study = load_study(roots)
    env_step = last_common_step(study.runs)[0] if at is None else at
    cells = cells_at(study, env_step, last)
    main = main_variants(study)
    variants = [variant for variant in study.variants if variant not in main]
    whole = [variant for variant in main if variant.kind == "method" and variant.method == "sibe"]
    ablated = {(c.background, c.task) for c in cells if c.variant in variants}
    with_ablation = [c for c in cells if (c.background, c.task) in ablated]
    found = [aggregate(cells, main, background) for background in study.backgrounds]
    aggregates = [one for one in found if one is not None]
    return Results(
        study=study,
        env_step=env_step,
        last=last,
        cells=cells,
        table=score_table([c for c in cells if c.variant in main], main, env_step),
        ablations=score_table(with_ablation, [*whole, *variants], env_step, printed=False),
        aggregates=aggregates,
        differences=differences(cells),
        references=[r for r in reference_scores() if r.task in study.tasks(r.background)],
        notes=[
            *_step_notes(study, env_step, at, last),
            *_seed_notes(cells),
            *_task_notes(aggregates),
        ],
    )


def _step_notes(study: Study, env_step: int, at: int | None, last: int) -> list[str]:
    runs = study.runs
    missing = [run for run in runs if score_at(run, env_step, last) is None]
    notes = []
    if at is None and not missing:
        furthest = max(run.reached for run in runs)
        behind = min(runs, key=lambda run: run.reached)
        if furthest > env_step:
            notes.append(
                f"The table is at env step {env_step}, the last with an evaluation of all "
                f"{len(runs)} runs: {behind.name} has come no further, others are at {furthest}. "
                "--at chooses another step."
            )
    if missing:
        notes.append(
            f"{len(missing)} of {len(runs)} runs have no {_evaluations(last)} {env_step} and "
            f"are missing from the tables: {_some([run.name for run in missing])}."
        )
    unfinished = [run.name for run in runs if run.reached < run.planned]
    if unfinished:
        notes.append(f"Unfinished: {_some(unfinished)}.")
    return notes


def _evaluations(last: int) -> str:
    return "evaluation at env step" if last == 1 else f"{last} evaluations up to env step"


def _seed_notes(cells: Sequence[Cell]) -> list[str]:
    few = sum(cell.n < FEWEST for cell in cells)
    if not few:
        return []
    return [
        f"{few} of {len(cells)} entries rest on fewer than {FEWEST} seeds: they have no 95 % "
        "interval, and say little about the next seed."
    ]


def _task_notes(aggregates: Sequence[Aggregate]) -> list[str]:
    return [
        f"{setting_name(one.background)}: {', '.join(one.left_out)} not in the "
        "aggregates, because not every method has it or its return has no scale of 1000."
        for one in aggregates
        if one.left_out
    ]


def _some(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
