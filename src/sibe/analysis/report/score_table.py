"""The table of scores at one env step: our runs, and right below them what the paper printed.

A row is a setting, a task and an origin; rows of different origin are never marked together and
say which they are. ``markdown_table`` and ``latex_table`` set it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sibe.analysis.comparison import setting_name
from sibe.analysis.report.paper_table import Mark, PaperCell, marks, paper_table
from sibe.analysis.scores import Cell
from sibe.analysis.variants import Variant
from sibe.catalogue.registry import ENTRIES, find_agent
from sibe.logs.markup import latex, markdown

RULES = (
    "Mean ± standard error over n seeds. Asterisk: the highest mean of the row. Bold: within the "
    "standard error of its difference to the highest mean (the rule that reproduces the bold of "
    "the paper's table). One seed has no standard error, and so no bold."
)

_PAPER_STEP = 500_000


class TableCell(NamedTuple):
    """A number of the table."""

    mean: float
    se: float
    n: int
    mark: Mark


class TableRow(NamedTuple):
    """One task in one setting, from one origin."""

    background: str
    task: str
    origin: str
    """"these runs" or "paper" """
    env_step: int
    entries: list[TableCell | None]
    """one per column"""

    @property
    def common_n(self) -> int | None:
        """The number of seeds, if it is the same in the whole row."""
        counts = {entry.n for entry in self.entries if entry}
        return counts.pop() if len(counts) == 1 else None


class ScoreTable(NamedTuple):
    """Columns are variants; the rows of our runs and of the paper alternate."""

    columns: list[str]
    rows: list[TableRow]


def score_table(
    cells: Sequence[Cell], variants: Sequence[Variant], env_step: int, *, printed: bool = True
) -> ScoreTable:
    """Return the table of ``variants``; if ``printed``, with the paper's row where it has the task.

    Methods that only the paper has get a column of their own, so that its rows are whole.
    """
    paper = {(c.background, c.task, c.method): c for c in paper_table()} if printed else {}
    places = list(dict.fromkeys((cell.background, cell.task) for cell in cells))
    ours = {variant.method for variant in variants if variant.kind == "method"}
    theirs = {method for *place, method in paper if tuple(place) in places}
    others = [method for method in ENTRIES if method in theirs - ours]
    by_place = {(cell.background, cell.task, cell.variant.key): cell for cell in cells}
    rows = []
    for place in places:
        found = _ours([by_place.get((*place, variant.key)) for variant in variants])
        rows.append(TableRow(*place, "these runs", env_step, found + [None] * len(others)))
        entries = _theirs(variants, others, place, paper)
        if any(entries):
            rows.append(TableRow(*place, "paper", _PAPER_STEP, entries))
    names = [variant.label for variant in variants] + [
        find_agent(method).label for method in others
    ]
    return ScoreTable(names, rows)


def _ours(cells: Sequence[Cell | None]) -> list[TableCell | None]:
    means = [cell.mean if cell else math.nan for cell in cells]
    ses = [cell.se if cell else math.nan for cell in cells]
    found = zip(cells, means, ses, marks(means, ses), strict=True)
    return [TableCell(mean, se, cell.n, mark) if cell else None for cell, mean, se, mark in found]


def _theirs(
    variants: Sequence[Variant],
    others: Sequence[str],
    place: tuple[str, str],
    paper: dict[tuple[str, str, str], PaperCell],
) -> list[TableCell | None]:
    columns = [
        *((variant.method, variant.kind, variant.preset) for variant in variants),
        *((method, "method", "") for method in others),
    ]
    entries: list[TableCell | None] = [None] * len(columns)
    taken: set[str] = set()
    # One printed number goes to one column only: to that of the paper's preset, if there is one.
    for index in sorted(range(len(columns)), key=lambda i: columns[i][2] != "paper"):
        method, kind, _ = columns[index]
        cell = paper.get((*place, method))
        if cell is not None and kind == "method" and method not in taken:
            taken.add(method)
            entries[index] = TableCell(cell.mean, cell.se, cell.seeds, cell.mark)
    return entries


def cell_text(entry: TableCell, row: TableRow, plus_minus: str = " ± ") -> str:
    """Return "867 ± 8", with n where the row's seeds differ or there is only one."""
    size = abs(entry.mean)
    digits = 0 if row.origin == "paper" or size >= 10 else 1 if size >= 1 else 2
    text = f"{entry.mean:.{digits}f}"
    if math.isfinite(entry.se):
        text += f"{plus_minus}{entry.se:.{digits}f}"
    return text if row.common_n else f"{text} (n={entry.n})"


def row_label(row: TableRow) -> str:
    """Return where the row's numbers come from, at which env step and over how many seeds."""
    seeds = f", n = {row.common_n}" if row.common_n else ""
    return f"{row.origin}, {steps_text(row.env_step)}{seeds}"


def steps_text(env_step: int) -> str:
    """Return 500k, 1M, 3008: as short as it can be said exactly."""
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if env_step >= unit and env_step % unit == 0:
            return f"{env_step // unit}{name}"
    return str(env_step)


def markdown_table(table: ScoreTable) -> str:
    """Return the table as Markdown."""
    lines = [
        "| " + " | ".join(["setting", "task", "origin", *map(markdown, table.columns)]) + " |",
        "|" + "---|" * (3 + len(table.columns)),
    ]
    for row in table.rows:
        cells = [_markdown_cell(entry, row) for entry in row.entries]
        origin = f"*{row_label(row)}*" if row.origin == "paper" else row_label(row)
        place = [setting_name(row.background), markdown(row.task), origin]
        lines.append("| " + " | ".join([*place, *cells]) + " |")
    return "\n".join(lines)


def _markdown_cell(entry: TableCell | None, row: TableRow) -> str:
    if entry is None:
        return "–"
    text = cell_text(entry, row)
    return (f"**{text}**" if entry.mark.bold else text) + ("\\*" if entry.mark.asterisk else "")


def latex_table(table: ScoreTable, caption: str) -> str:
    """Return the table as LaTeX that needs no package."""
    head = ["Setting", "Task", "Origin", *table.columns]
    lines = [
        r"\begin{table*}[t]",
        r"\centering",
        rf"\caption{{{latex(caption)}}}",
        rf"\begin{{tabular}}{{lll|{'c' * len(table.columns)}}}",
        r"\hline",
        " & ".join(map(latex, head)) + r" \\",
    ]
    before = None
    for row in table.rows:
        if row.background != before:
            lines.append(r"\hline")
        setting = setting_name(row.background) if row.background != before else ""
        before = row.background
        cells = [_latex_cell(entry, row) for entry in row.entries]
        place = [latex(setting), latex(row.task), rf"\emph{{{latex(row_label(row))}}}"]
        lines.append(" & ".join([*place, *cells]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", r"\end{table*}"]) + "\n"


def _latex_cell(entry: TableCell | None, row: TableRow) -> str:
    if entry is None:
        return "--"
    text = cell_text(entry, row, r"$\pm$")
    text = rf"\textbf{{{text}}}" if entry.mark.bold else text
    return text + (r"$^\ast$" if entry.mark.asterisk else "")
