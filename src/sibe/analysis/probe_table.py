"""The probe's scores as a table for people and one for programs."""

from __future__ import annotations

import csv
import io

from sibe.analysis.probe import KNN, NEIGHBOURS, R2, Score

COLUMNS = ("run", "latent", "measure", "group", "quantity", "value", "low", "high", "chance")
HEADINGS = {
    (R2, "positions"): "positions",
    (R2, "velocities"): "velocities",
    (R2, "task"): "task's own",
    (R2, "background"): "background",
    (KNN, "pose"): "pose",
    (KNN, "background"): "background",
}


def summary(scores: list[Score]) -> dict[tuple[str, str], dict[tuple[str, str], Score]]:
    """Return the group scores by (run, latent) and then by (measure, group), in order."""
    rows: dict[tuple[str, str], dict[tuple[str, str], Score]] = {}
    for score in scores:
        if not score.quantity:
            rows.setdefault((score.run, score.latent), {})[score.measure, score.group] = score
    return rows


def as_text(scores: list[Score]) -> str:
    """Return one line per run and representation: value and 95 % interval of each group."""
    rows = summary(scores)
    columns = [key for key in HEADINGS if any(key in row for row in rows.values())]
    label = max(len("run"), *(len(run) for run, _ in rows))
    decoded = sum(measure == R2 for measure, _ in columns)
    top = f"{'':{label}s}    {'linear decoding, R² on held-out episodes':{16 * decoded}s}"
    lines = [
        f"{top}  {NEIGHBOURS} nearest neighbours shared with",
        f"{'run':{label}s}    " + "".join(f"  {HEADINGS[key]:14s}" for key in columns),
    ]
    for (run, latent), row in rows.items():
        cells = "".join(f"  {_cell(row[key]):14s}" for key in columns)
        lines.append(f"{run:{label}s}  {latent:2s}{cells}")
    chances = {key: row[key].chance for row in rows.values() for key in columns if key in row}
    cells = "".join(f"  {chances[key]:<14.2f}" for key in columns)
    lines.append(f"{'knowing nothing':{label + 4}s}{cells}")
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
    value, low, high = score.estimate
    return f"{value:.2f} {low:.2f}–{high:.2f}"
