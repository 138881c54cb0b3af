"""What two runs are compared by: their csv files but for the clock, and their last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sibe.logs.csv_log import WALL_CLOCK_COLUMNS


def without_wall_clock(path: Path) -> list[list[str]]:
    """Return the rows of a csv file of a run, the header included."""
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]
    keep = [i for i, name in enumerate(header) if name not in WALL_CLOCK_COLUMNS]
    return [[row[i] for i in keep] for row in (header, *rows)]


def flat(state: Any, name: str = "") -> dict[str, Any]:
    """Return the leaves of nested dicts and lists by their path."""
    if isinstance(state, dict):
        return {k: v for key in state for k, v in flat(state[key], f"{name}/{key}").items()}
    if isinstance(state, (list, tuple)):
        return {k: v for i, x in enumerate(state) for k, v in flat(x, f"{name}/{i}").items()}
    return {name: state}
