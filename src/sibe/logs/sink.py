"""What the recorder feeds: csv files, TensorBoard, the console, a tracker.

A sink gets the rows of the csv files (columns in csv_log.py); their ``frame`` is the env step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Row = Mapping[str, Any]
"""Numbers by column; None where there is none."""

_COUNTERS = ("frame", "step", "episode", "total_time")


class Sink(Protocol):
    """Takes what a run measures. It is called by the training loop, so it must not wait."""

    def episode(self, row: Row) -> None:
        """Take a training episode: a row of train.csv."""

    def evaluation(self, row: Row, episodes: Sequence[Row]) -> None:
        """Take an evaluation: a row of eval.csv and its rows of eval_episodes.csv."""

    def flush(self) -> None:
        """Write what is queued: before a checkpoint, whose resumption does not log it again."""

    def close(self) -> None:
        """Write what is queued and release everything."""


def scalars(row: Row) -> dict[str, float]:
    """Return what a row has to plot over env steps."""
    return {
        name: float(value)
        for name, value in row.items()
        if value is not None and name not in _COUNTERS
    }
