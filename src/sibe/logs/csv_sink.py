"""The three csv files of a run as one sink, and how they are taken back on resume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sibe.errors import UserError
from sibe.logs.csv_log import EVAL_COLUMNS, EVAL_EPISODE_COLUMNS, TRAIN_COLUMNS, CsvLog, read_csv
from sibe.logs.sink import Row
from sibe.storage.run_files import RunFiles


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
    def rewind(run: RunFiles, positions: Mapping[str, int]) -> None:
        """Cut off whatever came after a checkpoint's ``positions``; everything if they are {}."""
        for path in (run.train_csv, run.eval_csv, run.eval_episodes_csv):
            if path.exists():
                CsvLog.truncate(path, positions.get(path.name, 0))

    @staticmethod
    def before_evaluation(run: RunFiles, env_step: int) -> tuple[int, dict[str, int]]:
        """Return the env step of the evaluation before that at ``env_step``, 0 if there is none.

        And where eval.csv and eval_episodes.csv end without the latter: what ``rewind`` takes.
        """
        frames = read_csv(run.eval_csv)["frame"]
        earlier = frames[frames < env_step]
        positions = {}
        for path in (run.eval_csv, run.eval_episodes_csv):
            kept = read_csv(path)["frame"] < env_step
            lines = path.read_bytes().splitlines(keepends=True)[: 1 + int(kept.sum())]
            positions[path.name] = sum(map(len, lines))
        return int(earlier[-1]) if earlier.size else 0, positions

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

    def positions(self) -> dict[str, int]:
        """Return where each file ends, by its name: what ``rewind`` takes."""
        return {log.path.name: log.position for log in self._logs}

    def close(self) -> None:
        """Close the files."""
        for log in self._logs:
            log.close()
