"""The three csv files of a run as one sink, and how they are taken back on resume."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sibe.errors import UserError
from sibe.logs.csv_log import (
    EVAL_COLUMNS,
    EVAL_EPISODE_COLUMNS,
    TRAIN_COLUMNS,
    CsvLog,
    LogCopy,
    read_csv,
    rewind,
)
from sibe.logs.sink import Row
from sibe.storage.contained_file import read_file
from sibe.storage.run_files import RunFiles

KnownLog = LogCopy | int
"""What a checkpoint knows of a csv file: its content, or of an older version only its length."""


def known_logs(stored: Any) -> dict[str, KnownLog]:
    """Return what a checkpoint knows of the csv files; a ValueError if it is damaged."""
    known: dict[str, KnownLog] = {}
    for name, value in stored.items():
        if type(value) is int and value >= 0:
            known[name] = value
        elif [type(part) for part in value] == [int, str, bytes]:
            copy = LogCopy(*value)
            copy.content()
            known[name] = copy
        else:
            raise ValueError(f"what it knows of {name} is damaged")
    return known


class CsvSink:
    """Appends to train.csv, eval.csv and eval_episodes.csv.

    Args:
        run: where.
        metrics: the agent's own columns of train.csv.
    """

    def __init__(self, run: RunFiles, metrics: Sequence[str]) -> None:
        columns = (*TRAIN_COLUMNS, *metrics)
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            raise UserError(
                f"the method has metrics that train.csv already has ({', '.join(twice)}): "
                "give them other names"
            )
        self._train = CsvLog(run.train_csv, columns)
        self._eval = CsvLog(run.eval_csv, EVAL_COLUMNS)
        self._eval_episodes = CsvLog(run.eval_episodes_csv, EVAL_EPISODE_COLUMNS)
        self._logs = (self._train, self._eval, self._eval_episodes)

    @staticmethod
    def rewind(run: RunFiles, logs: Mapping[str, KnownLog], report: Callable[[str], None]) -> None:
        """Make the files what they were at a checkpoint; empty if ``logs`` is {}.

        What is missing or damaged is put back, and named to ``report``.
        """
        for path in (run.train_csv, run.eval_csv, run.eval_episodes_csv):
            known = logs.get(path.name, 0)
            if isinstance(known, LogCopy):
                if damage := rewind(path, known):
                    report(f"{damage}: it is put back from the checkpoint")
            elif path.exists():
                CsvLog.truncate(path, known)
            elif known:
                report(f"{path.name} is missing: the run goes on without its earlier rows")

    @staticmethod
    def before_evaluation(run: RunFiles, env_step: int) -> tuple[int, dict[str, LogCopy]]:
        """Return the env step of the evaluation before that at ``env_step``, 0 if there is none.

        And the files without the latter, by name: what ``rewind`` takes.
        """
        frames = read_csv(run.eval_csv)["frame"]
        earlier = frames[frames < env_step]
        copies = {run.train_csv.name: LogCopy.of(read_file(run.train_csv, within=run.path))}
        for path in (run.eval_csv, run.eval_episodes_csv):
            kept = read_csv(path)["frame"] < env_step
            lines = read_file(path, within=run.path).splitlines(keepends=True)
            copies[path.name] = LogCopy.of(b"".join(lines[: 1 + int(kept.sum())]))
        return int(earlier[-1]) if earlier.size else 0, copies

    def episode(self, row: Row) -> None:
        """Append to train.csv."""
        self._train.append(row)

    def evaluation(self, row: Row, episodes: Sequence[Row]) -> None:
        """Append every return, then the mean, so that a mean is never alone."""
        for episode in episodes:
            self._eval_episodes.append(episode)
        self._eval.append(row)

    def flush(self) -> None:
        """Return once all rows are on the disk."""
        for log in self._logs:
            log.sync()

    def copies(self) -> dict[str, LogCopy]:
        """Return what each file holds, by its name: what ``rewind`` takes."""
        return {log.path.name: log.copy() for log in self._logs}

    def close(self) -> None:
        """Close the files."""
        for log in self._logs:
            log.close()
