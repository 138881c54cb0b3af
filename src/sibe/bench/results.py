"""What comes out of a benchmark: rows, goals and parts, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from sibe.bench.sides import median_ratio
from sibe.logs.amounts import count

Times = Mapping[str, list[float]]


@dataclass(frozen=True)
class Row:
    """One measured quantity, less of which is better."""

    name: str
    unit: str
    ours: float
    reference: float | None = None
    """the same of the reference"""
    ratio: float | None = None
    """reference over ours, the median of the ratios of neighboring measurements"""
    limit: float | None = None
    """what this machine allows at best"""
    of_limit: float | None = None
    """limit over ours: 1 is as fast as the machine can"""
    samples: dict[str, list[float]] = field(default_factory=dict)
    """every measurement, by side"""


@dataclass(frozen=True)
class Goal:
    """A number that has been promised."""

    name: str
    value: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        """Whether the promise is kept here."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True)
class Section:
    """The outcome of one benchmark."""

    rows: list[Row]
    goals: list[Goal] = field(default_factory=list)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    """where the time of an agent step goes: seconds by part, by preset"""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        goals = [{**asdict(goal), "met": goal.met} for goal in self.goals]
        return {"rows": [asdict(row) for row in self.rows], "goals": goals, "parts": self.parts}


def timed_row(name: str, times: Times, *, limit: float | None = None) -> Row:
    """Return the row of times in seconds under "ours" and, if they were measured, "reference".

    A limit that was measured in turns with them is under "limit".
    """
    ours, reference = times["ours"], times.get("reference")
    limits = times.get("limit", None if limit is None else [limit] * len(ours))
    return Row(
        name,
        "s",
        float(np.median(ours)),
        reference=None if reference is None else float(np.median(reference)),
        ratio=None if reference is None else median_ratio(reference, ours),
        limit=None if limits is None else float(np.median(limits)),
        of_limit=None if limits is None else median_ratio(limits, ours),
        samples=dict(times),
    )


def format_quantity(value: float | None, unit: str) -> str:
    """Return a value with a unit that suits its size."""
    if value is None:
        return ""
    if unit == "s":
        return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.3g} ms"
    if unit == "B":
        return f"{value / 1e6:.1f} MB" if value >= 1e6 else f"{value / 1e3:.1f} kB"
    return f"{value:.3g} {unit}".rstrip()


def table(result: dict[str, Any]) -> str:
    """Return the JSON of a benchmark as text for people."""
    lines = [_machine_line(result)]
    head = ("", "ours", "reference", "ratio", "limit", "of limit")
    for name, section in result["sections"].items():
        cells = [_cells(row) for row in section["rows"]]
        lines += ["", *_aligned([(name, *head[1:]), *cells])]
        for preset, parts in section["parts"].items():
            lines.append(_parts_line(preset, parts))
    lines += ["", *_goal_lines(result)]
    return "\n".join(lines)


def _machine_line(result: dict[str, Any]) -> str:
    machine = result["machine"]
    return (
        f"{machine['cpu']}, {count(machine['threads'], 'thread')}: "
        f"{machine['matmul_flops'] / 1e9:.0f} GFLOP/s matrix multiply, "
        f"{machine['copy_bytes'] / 1e9:.1f} GB/s copy (read + write)"
    )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    quantities = (format_quantity(row[key], row["unit"]) for key in ("ours", "reference"))
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}×"
    share = "" if row["of_limit"] is None else f"{row['of_limit']:.0%}"
    return (row["name"], *quantities, ratio, format_quantity(row["limit"], row["unit"]), share)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _parts_line(preset: str, parts: dict[str, float]) -> str:
    whole = sum(parts.values()) or 1.0
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    shares = ", ".join(f"{part} {seconds / whole:.0%}" for part, seconds in ordered)
    return f"{preset}, where an agent step goes: {shares}"


def _goal_lines(result: dict[str, Any]) -> list[str]:
    goals = [goal for section in result["sections"].values() for goal in section["goals"]]
    lines = ["goals (quick sizes: they say nothing)" if result["quick"] else "goals"] * bool(goals)
    for goal in goals:
        sign, verdict = "≥" if goal["at_least"] else "≤", "met" if goal["met"] else "not met"
        lines.append(f"{verdict:8s} {goal['name']}: {goal['value']:.3g} ({sign} {goal['bound']})")
    return lines
