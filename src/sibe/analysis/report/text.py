"""The report as text: table.md and table.tex, and the CSV files that keep every seed's numbers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sibe.analysis.comparison import setting_name
from sibe.analysis.report.aggregate import Aggregate
from sibe.analysis.report.differences import Difference
from sibe.analysis.report.paper_table import Mark, Reference, paper_table
from sibe.analysis.report.results import Results
from sibe.analysis.report.score_table import RULES, latex_table, markdown_table, steps_text
from sibe.analysis.scores import score_at
from sibe.analysis.statistics import Estimate, bootstrap_interval
from sibe.logs.markup import markdown

REFERENCE_RULES = (
    "Scores that others published, standard setting, mean ± standard deviation over seeds (not "
    "the standard error of the tables above). Other code, other networks, other batch sizes."
)
DIFFERENCE_RULES = (
    "Mean score of the first method minus that of another, with the 95 % bootstrap interval over "
    "seeds, where both have three or more. An interval above 0 says that the first is better."
)
_SEED = 0


def text_files(results: Results) -> dict[str, bytes]:
    """Return the report's text files by name."""
    files = {
        "table.md": _markdown(results),
        "table.tex": _latex(results),
        "table.csv": _table_csv(results),
        "seeds.csv": _seeds_csv(results),
        "evaluations.csv": _evaluations_csv(results),
        "aggregate.csv": _aggregate_csv(results.aggregates),
    }
    return {name: text.encode() for name, text in files.items()}


def _markdown(results: Results) -> str:
    parts = [f"# Scores {results.when}", RULES]
    if results.table.rows:
        parts.append(markdown_table(results.table))
    if results.ablations.rows:
        parts += ["## Ablations of SIBE", markdown_table(results.ablations)]
    if results.differences:
        parts += ["## Differences", DIFFERENCE_RULES, _differences(results.differences)]
    if results.aggregates:
        parts += ["## Over all tasks", aggregate_text(results.aggregates)]
    if results.references:
        parts += ["## Public reference scores", REFERENCE_RULES, _references(results.references)]
    if results.notes:
        parts += ["## Notes", "\n".join(f"- {markdown(note)}" for note in results.notes)]
    if results.study.left_out:
        lines = [f"- {markdown(f'{name}: {reason}')}" for name, reason in results.study.left_out]
        parts += ["## Left out", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def aggregate_text(aggregates: Sequence[Aggregate]) -> str:
    """Return the aggregates as a Markdown table."""
    lines = [
        "| setting | method | tasks | runs | IQM of return / 1000 | P(first is better) |",
        "|---|---|---|---|---|---|",
    ]
    for data in aggregates:
        for one in data.variants:
            better = estimate_text(one.improvement) if one.improvement else "–"
            place = [setting_name(data.background), markdown(one.variant.label)]
            numbers = [str(len(data.tasks)), str(one.runs), estimate_text(one.iqm), better]
            lines.append("| " + " | ".join([*place, *numbers]) + " |")
    return "\n".join(lines)


def _differences(found: Sequence[Difference]) -> str:
    lines = ["| setting | task | difference | seeds | mean |", "|---|---|---|---|---|"]
    for one in found:
        place = f"{setting_name(one.first.background)} | {one.first.task}"
        pair = f"{one.first.variant.label} − {one.other.variant.label}"
        seeds = f"{one.first.n}, {one.other.n}"
        lines.append(f"| {place} | {pair} | {seeds} | {estimate_text(one.estimate, digits=None)} |")
    return "\n".join(lines)


def estimate_text(estimate: Estimate, digits: int | None = 2) -> str:
    """Return "0.67 [0.65, 0.68]", without the interval if there is none.

    ``digits`` after the point; None for as many as show two digits of the interval's half width.
    """
    if digits is None:
        digits = _digits(estimate)
    if not math.isfinite(estimate.low):
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def _digits(estimate: Estimate) -> int:
    half = (estimate.high - estimate.low) / 2
    size = half if half > 0 else abs(estimate.value)
    return max(0, 1 - math.floor(math.log10(size))) if size > 0 else 0


def _references(references: Sequence[Reference]) -> str:
    lines = ["| task | method | env steps | score | seeds | source |", "|---|---|---|---|---|---|"]
    for r in references:
        step, seeds = steps_text(r.env_step), r.seeds or "unknown"
        lines.append(
            f"| {r.task} | {r.method} | {step} | {reference_text(r)} | {seeds} | {r.source} |"
        )
    return "\n".join(lines)


def reference_text(reference: Reference) -> str:
    """Return "841 ± 45"."""
    spread = f" ± {reference.sd:.0f}" if math.isfinite(reference.sd) else ""
    return f"{reference.mean:.0f}{spread}"


def _latex(results: Results) -> str:
    tables = []
    if results.table.rows:
        caption = f"Scores {results.when}. {RULES} Rows of the paper are as printed."
        tables.append(latex_table(results.table, caption))
    if results.ablations.rows:
        caption = f"Ablations of SIBE {results.when}. {RULES}"
        tables.append(latex_table(results.ablations, caption))
    return "\n".join(tables)


def _table_csv(results: Results) -> str:
    """Ours, the paper's and the public scores in one file; ``origin`` tells them apart."""
    marks = _marks(results)
    rows: list[list[Any]] = []
    for cell in results.cells:
        low, high = bootstrap_interval(cell.scores, np.random.default_rng(_SEED))
        numbers = [results.env_step, cell.n, cell.mean, cell.se, "standard error", low, high]
        bold, asterisk = marks[cell.background, cell.task, cell.variant.label]
        place = ["these runs", cell.background, cell.task, cell.variant.label]
        rows.append([*place, *numbers, int(bold), int(asterisk), ""])
    tasks = results.study.tasks()
    for p in paper_table():
        if p.task in tasks and p.background in results.study.backgrounds:
            numbers = [p.env_step, p.seeds, p.mean, p.se, "standard error", math.nan, math.nan]
            marked = [int(p.mark.bold), int(p.mark.asterisk), "the paper's table, as printed"]
            rows.append(["paper", p.background, p.task, p.method, *numbers, *marked])
    for r in results.references:
        numbers = [r.env_step, r.seeds, r.mean, r.sd, "standard deviation", math.nan, math.nan]
        rows.append(["reference", r.background, r.task, r.method, *numbers, "", "", r.source])
    head = "origin background task method env_step n mean spread spread_is bootstrap_low"
    return _csv([*head.split(), "bootstrap_high", "bold", "asterisk", "source"], rows)


def _marks(results: Results) -> dict[tuple[str, str, str], Mark]:
    """Return how each of our numbers is set; SIBE, in both tables, as in the first."""
    return {
        (row.background, row.task, column): entry.mark
        for table in (results.ablations, results.table)
        for row in table.rows
        if row.origin == "these runs"
        for column, entry in zip(table.columns, row.entries, strict=True)
        if entry
    }


def _seeds_csv(results: Results) -> str:
    rows = [
        [
            run.background,
            run.task,
            results.study.variant_of[run.name].label,
            run.seed,
            score,
            run.name,
        ]
        for run in results.study.runs
        if (score := score_at(run, results.env_step, results.last)) is not None
    ]
    column = "return" if results.last == 1 else f"mean_of_{results.last}"
    head = ["background", "task", "method", "seed", f"{column}_at_{results.env_step}", "run"]
    return _csv(head, rows)


def _evaluations_csv(results: Results) -> str:
    rows = []
    for run in results.study.runs:
        place = [run.background, run.task, results.study.variant_of[run.name].label, run.seed]
        table = run.evals
        blank = np.full(len(table["frame"]), np.nan)
        spread, episodes = (table.get(c, blank) for c in ("episode_reward_std", "episodes"))
        for step, mean, std, n in zip(
            table["frame"], table["episode_reward"], spread, episodes, strict=True
        ):
            rows.append([*place, int(step), mean, std, n, run.name])
    head = "background task method seed env_step return std_over_episodes episodes run"
    return _csv(head.split(), rows)


def _aggregate_csv(aggregates: Sequence[Aggregate]) -> str:
    rows = []
    for data in aggregates:
        for one in data.variants:
            better = one.improvement or Estimate(math.nan, math.nan, math.nan)
            place = [data.background, one.variant.label, " ".join(data.tasks), one.runs]
            rows.append([*place, *one.iqm, data.variants[0].variant.label, *better])
    head = "background method tasks runs iqm iqm_low iqm_high first p_first_is_better p_low p_high"
    return _csv(head.split(), rows)


def _csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_value(value) for value in row] for row in rows)
    return out.getvalue()


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.10g}"
    return value
