"""The page's tables: scores, aggregates, public references and the list of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from sibe.analysis.comparison import SETTINGS, Study
from sibe.analysis.report.aggregate import Aggregate
from sibe.analysis.report.paper_table import Reference
from sibe.analysis.report.score_table import (
    Entry,
    Row,
    ScoreTable,
    cell_text,
    row_label,
    steps_text,
)
from sibe.analysis.report.text import estimate_text, reference_text
from sibe.analysis.runs import Run


def table_html(label: str, head: Sequence[str], rows: Sequence[str]) -> str:
    """Return a table that scrolls by itself where the screen is narrow; ``rows`` are HTML."""
    cells = "".join(f"<th scope=col>{escape(name)}</th>" for name in head)
    return (
        f"<div class=scroll role=region tabindex=0 aria-label='{escape(label)}'>"
        f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def score_html(table: ScoreTable, label: str) -> str:
    """Return the table of scores; the paper's rows have a class of their own."""
    rows = []
    for row in table.rows:
        kind = " class=printed" if row.origin == "paper" else ""
        place = [SETTINGS.get(row.background, row.background), row.task]
        head = "".join(f"<td>{escape(text)}</td>" for text in place)
        cells = "".join(_score(entry, row) for entry in row.entries)
        rows.append(f"<tr{kind}>{head}<th scope=row>{escape(row_label(row))}</th>{cells}</tr>")
    return table_html(label, ["Setting", "Task", "Origin", *table.columns], rows)


def _score(entry: Entry | None, row: Row) -> str:
    if entry is None:
        return "<td class=number>–</td>"
    text = escape(cell_text(entry, row))
    text = f"<b>{text}</b>" if entry.mark.bold else text
    return f"<td class=number>{text}{'*' if entry.mark.asterisk else ''}</td>"


def aggregate_html(aggregates: Sequence[Aggregate]) -> str:
    """Return interquartile means and probabilities of improvement."""
    rows = []
    for data in aggregates:
        first = data.arms[0].arm.label
        for one in data.arms:
            better = estimate_text(one.improvement) if one.improvement else "–"
            texts = [SETTINGS.get(data.background, data.background), str(len(data.tasks))]
            numbers = [str(one.runs), estimate_text(one.iqm), better, first]
            rows.append(
                f"<tr><th scope=row>{escape(one.arm.label)}</th>"
                + "".join(f"<td>{escape(text)}</td>" for text in (*texts, *numbers))
                + "</tr>"
            )
    head = ["Method", "Setting", "Tasks", "Runs", "IQM [95 %]", "P(first better) [95 %]", "First"]
    return table_html("Aggregates over tasks", head, rows)


def reference_html(references: Sequence[Reference]) -> str:
    """Return the public scores with their sources."""
    rows = [
        f"<tr><td>{escape(r.task)}</td><th scope=row>{escape(r.method)}</th>"
        f"<td>{steps_text(r.env_step)}</td><td class=number>{reference_text(r)}</td>"
        f"<td>{escape(r.seeds or 'not said')}</td><td>{escape(r.source)}</td></tr>"
        for r in references
    ]
    head = ["Task", "Method", "Env steps", "Score", "Seeds", "Source"]
    return table_html("Public reference scores", head, rows)


def runs_html(study: Study) -> str:
    """Return one row per run, with its config and the versions it ran with."""
    rows = [_run_row(run, study.arm_of[run.name].label) for run in study.runs]
    head = "Run,Method,Setting,Task,Seed,Env steps,Last return,Preset,Version,Revision,Details"
    return table_html("Runs", head.split(","), rows)


def _run_row(run: Run, label: str) -> str:
    steps = str(run.reached) if run.reached >= run.planned else f"{run.reached} of {run.planned}"
    git, versions = run.meta.get("git"), run.meta.get("versions")
    texts = [
        label,
        SETTINGS.get(run.background, run.background),
        run.task,
        str(run.seed),
        steps,
        f"{run.evals['episode_reward'][-1]:.1f}",
        str(run.config["preset"]),
        str(versions.get("sibe")) if isinstance(versions, dict) else "not said",
        _revision(git),
    ]
    details = escape(json.dumps({"config": run.config, "meta": run.meta}, indent=1))
    cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
    return (
        f"<tr><th scope=row>{escape(run.name)}</th>{cells}"
        f"<td><details><summary>config</summary><pre>{details}</pre></details></td></tr>"
    )


def _revision(git: Any) -> str:
    if not isinstance(git, dict):
        return "not said"
    return str(git.get("revision", ""))[:10] + (" (changed)" if git.get("dirty") else "")
