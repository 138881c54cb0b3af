"""What the rungs found, as a table for people and one for programs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import NamedTuple

RETURN, R2, LOSS = "return", "R2", "loss"
MEAN = "mean"
COLUMNS = ("rung", "measure", "latent", "quantity", "step", "value")
_MOST_QUANTITIES = 8  # in the table for people


class RungResult(NamedTuple):
    """One number."""

    rung: str
    measure: str
    """return, R2 or loss"""
    latent: str
    """the representation that R2 is of, or nothing"""
    quantity: str
    """one of the task's observation, or mean; nothing for other measures"""
    step: int
    """env step of a return, update of R2 and loss"""
    value: float


def as_csv(rows: Sequence[RungResult]) -> str:
    """Return every number, one per line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow((*row[:-1], repr(row.value)))
    return text.getvalue()


def as_text(rows: Sequence[RungResult]) -> str:
    """Return a block of returns by env step and one of R² and loss by update."""
    blocks = (_returns([row for row in rows if row.measure == RETURN]), _knowledge(rows))
    return "\n\n".join(block for block in blocks if block)


def _returns(rows: Sequence[RungResult]) -> str:
    if not rows:
        return ""
    steps = sorted({row.step for row in rows})
    values = {(row.rung, row.step): row.value for row in rows}
    lines = [["Return at env step", *map(str, steps)]]
    for rung in dict.fromkeys(row.rung for row in rows):
        lines.append([rung, *(_number(values.get((rung, step)), 1) for step in steps)])
    return _aligned(lines)


def _knowledge(rows: Sequence[RungResult]) -> str:
    told = [row for row in rows if row.measure == R2]
    if not told:
        return ""
    values = {(row.rung, row.latent, row.step, row.quantity): row.value for row in told}
    losses = {(row.rung, row.step): row.value for row in rows if row.measure == LOSS}
    quantities = list(dict.fromkeys(row.quantity for row in told))
    shown = quantities[: _MOST_QUANTITIES + 1]
    lines = [["R² on held-out episodes", "update", "loss", *shown]]
    for rung, latent, step in dict.fromkeys((row.rung, row.latent, row.step) for row in told):
        found = (values.get((rung, latent, step, quantity)) for quantity in shown)
        loss = _number(losses.get((rung, step)), 3)
        lines.append([f"{rung} {latent}", str(step), loss, *(_number(one, 2) for one in found)])
    left = len(quantities) - len(shown)
    more = f"\nand {left} more quantities in the csv" if left else ""
    return _aligned(lines) + more


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        )
        for line in lines
    )
