"""The probe's scores as a table for people and one for programs."""

from __future__ import annotations

import csv
import io

from sibe.analysis.representation.probe import KNN, NEIGHBORS, R2, Score

COLUMNS = ("run", "latent", "measure", "group", "quantity", "value", "low", "high", "chance")
HEADINGS = {
    (R2, "positions"): "positions",
    (R2, "velocities"): "velocities",
    (R2, "task"): "task's own",
    (R2, "background"): "background",
    (KNN, "pose"): "pose",
    (KNN, "background"): "background",
}
_NOTHING = "knowing nothing"

Summary = dict[tuple[str, str], dict[tuple[str, str], Score]]


def summary(scores: list[Score]) -> Summary:
    """Return the group scores by (run, latent) and then by (measure, group), in order."""
    rows: Summary = {}
    for score in scores:
        if not score.quantity:
            rows.setdefault((score.run, score.latent), {})[score.measure, score.group] = score
    return rows


def as_text(scores: list[Score]) -> str:
    """Return two blocks, R² and neighbors: a line per run and representation, with intervals."""
    rows = summary(scores)
    titles = {
        R2: "Linear decoding: R² on held-out episodes [95 % interval]",
        KNN: f"Share of {NEIGHBORS} nearest neighbors that are also nearest by [95 % interval]",
    }
    return "\n\n".join(_block(title, measure, rows) for measure, title in titles.items())


def _block(title: str, measure: str, rows: Summary) -> str:
    keys = [key for key in HEADINGS if key[0] == measure and key in next(iter(rows.values()))]
    width = max(len(_NOTHING), *(len(run) + 4 for run, _ in rows))
    lines = [title, f"{'':{width}s}" + "".join(f"  {HEADINGS[key]:19s}" for key in keys)]
    for (run, latent), row in rows.items():
        cells = "".join(f"  {_cell(row[key])}" for key in keys)
        lines.append(f"{run:{width - 4}s}  {latent:2s}{cells}")
    chance = next(iter(rows.values()))
    cells = "".join(f"  {chance[key].chance:5.2f}{'':14s}" for key in keys)
    lines.append(f"{_NOTHING:{width}s}{cells}")
    return "\n".join(line.rstrip() for line in lines)


def as_csv(scores: list[Score]) -> str:
    """Return every score, those of single quantities included, one per line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for score in scores:
        fields = (score.run, score.latent, score.measure, score.group, score.quantity or "mean")
        writer.writerow((*fields, *map(repr, (*score.estimate, score.chance))))
    return text.getvalue()


def _cell(score: Score) -> str:
    # Adding 0 makes -0.00 a 0.00.
    value, low, high = (round(number, 2) + 0.0 for number in score.estimate)
    return f"{value:5.2f} [{low:5.2f},{high:5.2f}]"
