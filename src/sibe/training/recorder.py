"""Everything a run writes for people and programs to read: csv, TensorBoard, console, videos."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sibe.errors import UserError
from sibe.logs.console import Progress
from sibe.logs.csv_log import EVAL_COLUMNS, EVAL_EPISODE_COLUMNS, TRAIN_COLUMNS, CsvLog
from sibe.logs.tensorboard import TensorBoardLog
from sibe.logs.video import write_mp4
from sibe.storage.run_directory import RunDirectory
from sibe.training.evaluation import Episode, Frame

_NAMES = ("train.csv", "eval.csv", "eval_episodes.csv")
_VIDEO_FPS = 25


class Recorder:
    """Writes the logs of one run.

    Args:
        directory: the run.
        total_env_steps: for the progress display.
        say: takes messages until the display is up; then they go above the bar.
    """

    def __init__(
        self, directory: RunDirectory, total_env_steps: int, say: Callable[[str], None] = print
    ) -> None:
        self._directory, self._total, self._print = directory, total_env_steps, say
        self._progress: Progress | None = None
        self._logs: dict[str, CsvLog] = {}
        self._tensorboard: TensorBoardLog | None = None
        self._returns: tuple[float | None, float | None] = (None, None)

    def rewind(self, positions: dict[str, int]) -> None:
        """Cut from the csv files whatever came after a checkpoint; all of it if there is none."""
        for name in _NAMES:
            path = self._directory.path / name
            if path.exists():
                CsvLog.truncate(path, positions.get(name, 0))

    def open(self, metrics: Sequence[str], env_step: int) -> None:
        """Open the files; ``metrics`` are the agent's own columns of train.csv."""
        columns = ((*TRAIN_COLUMNS, *metrics), EVAL_COLUMNS, EVAL_EPISODE_COLUMNS)
        twice = sorted({name for name in columns[0] if columns[0].count(name) > 1})
        if twice:
            raise UserError(
                f"the method has metrics that train.csv already has ({', '.join(twice)}): "
                "give them other names"
            )
        for name, names in zip(_NAMES, columns, strict=True):
            self._logs[name] = CsvLog(self._directory.path / name, names)
        self._tensorboard = TensorBoardLog(
            self._directory.tensorboard, resume_at=env_step if env_step else None
        )
        self._progress = Progress(self._total, start_env_step=env_step)

    def say(self, text: str) -> None:
        """Print a line."""
        if self._progress is None:
            self._print(text)
        else:
            self._progress.line(text)

    def tick(self, env_step: int, agent_step: int, updates: int) -> None:
        """Show that time passes."""
        assert self._progress is not None
        self._progress.update(env_step, agent_step, updates, *self._returns)

    def episode(self, row: dict[str, Any]) -> None:
        """Write a training episode."""
        assert self._tensorboard is not None
        self._logs["train.csv"].append(row)
        self._returns = (row["episode_reward"], self._returns[1])
        hidden = ("frame", "step", "episode", "total_time")
        values = {name: value for name, value in row.items() if name not in hidden}
        self._tensorboard.scalars("train", values, row["frame"])

    def evaluation(self, counts: dict[str, Any], episodes: Sequence[Episode]) -> None:
        """Write an evaluation: every return, then the mean (so that a mean is never alone)."""
        assert self._tensorboard is not None
        returns = [episode.episode_return for episode in episodes]
        for number, episode in enumerate(episodes):
            self._logs["eval_episodes.csv"].append(
                {
                    "frame": counts["frame"],
                    "step": counts["step"],
                    "eval_episode": number,
                    "seed": episode.seed,
                    "episode_length": episode.env_steps,
                    "episode_reward": episode.episode_return,
                }
            )
        summary = {
            "episode_length": float(np.mean([episode.env_steps for episode in episodes])),
            "episode_reward": float(np.mean(returns)),
            "episode_reward_std": float(np.std(returns)),
            "episodes": len(episodes),
        }
        self._logs["eval.csv"].append({**counts, **summary})
        self._tensorboard.scalars("eval", summary, counts["frame"])
        self._returns = (self._returns[0], summary["episode_reward"])
        spread = f"{summary['episode_reward']:.1f} ± {summary['episode_reward_std']:.1f}"
        self.say(f"eval at env_step {counts['frame']}: return {spread} ({len(returns)} episodes)")

    def video(self, path: Path, frames: Sequence[Frame]) -> None:
        """Write a video; a machine that cannot is told so and goes on."""
        try:
            write_mp4(path, frames, _VIDEO_FPS)
        except UserError as error:
            self.say(f"no video: {error}")

    def positions(self) -> dict[str, int]:
        """Make the csv files safe on disk and return where each one ends."""
        assert self._tensorboard is not None
        self._tensorboard.flush()
        for log in self._logs.values():
            log.sync()
        return {name: log.position for name, log in self._logs.items()}

    def close(self) -> None:
        """Close all files and the display."""
        for log in self._logs.values():
            log.close()
        if self._tensorboard is not None:
            with contextlib.suppress(OSError):  # a full disk has been reported already
                self._tensorboard.close()
        if self._progress is not None:
            self._progress.close()
