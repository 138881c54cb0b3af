"""Everything a run writes for people and programs to read: rows to its sinks, and videos."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sibe.errors import UserError
from sibe.logs.console import Progress
from sibe.logs.csv_log import LogCopy, last_return
from sibe.logs.csv_sink import CsvSink, KnownLog
from sibe.logs.sink import Sink
from sibe.logs.tensorboard import TensorBoardLog
from sibe.logs.video import write_mp4
from sibe.storage.run_files import RunFiles
from sibe.training.evaluation import EvalEpisode, Frame


class Recorder:
    """Feeds the logs of one run: csv, TensorBoard, console, and ``optional`` ones.

    Args:
        run: where the files are.
        total_env_steps: for the progress display.
        say: takes messages until the display is up; then they go above the bar.
        optional: sinks without which the run goes on: one that raises is reported and dropped.
    """

    def __init__(
        self,
        run: RunFiles,
        total_env_steps: int,
        say: Callable[[str], None] = print,
        *,
        optional: Sequence[Sink] = (),
    ) -> None:
        self._run, self._total, self._print = run, total_env_steps, say
        self._csv: CsvSink | None = None
        self._progress: Progress | None = None
        self._needed: list[Sink] = []
        self._optional = list(optional)

    def rewind(self, logs: Mapping[str, KnownLog]) -> None:
        """Make the csv files what they were at a checkpoint; empty if there is none."""
        CsvSink.rewind(self._run, logs, self.say)

    def before_evaluation(self, env_step: int) -> tuple[int, dict[str, LogCopy]]:
        """Return the env step of the evaluation before, and the csv files as they were then."""
        return CsvSink.before_evaluation(self._run, env_step)

    def open(self, metrics: Sequence[str], env_step: int) -> None:
        """Open the files; ``metrics`` are the agent's own columns of train.csv."""
        self._csv = CsvSink(self._run, metrics)
        self._needed.append(self._csv)
        resume_at = env_step if env_step else None
        self._needed.append(TensorBoardLog(self._run.tensorboard, resume_at=resume_at))
        self._progress = Progress(
            self._total,
            start_env_step=env_step,
            episode_return=last_return(self._run.train_csv),
            eval_return=last_return(self._run.eval_csv),
        )
        self._needed.append(self._progress)

    def say(self, text: str) -> None:
        """Print a line."""
        if self._progress is None:
            self._print(text)
        else:
            self._progress.line(text)

    def tick(self, env_step: int, agent_step: int, updates: int) -> None:
        """Refresh the progress display."""
        assert self._progress is not None
        self._progress.update(env_step, agent_step, updates)

    def episode(self, row: dict[str, Any]) -> None:
        """Write a training episode."""
        self._feed(lambda sink: sink.episode(row))

    def evaluation(self, counts: dict[str, Any], episodes: Sequence[EvalEpisode]) -> None:
        """Write an evaluation: every return, and their mean."""
        rows = [
            {
                "frame": counts["frame"],
                "step": counts["step"],
                "eval_episode": number,
                "seed": episode.seed,
                "episode_length": episode.env_steps,
                "episode_reward": episode.episode_return,
            }
            for number, episode in enumerate(episodes)
        ]
        returns = [episode.episode_return for episode in episodes]
        mean = {
            **counts,
            "episode_length": float(np.mean([episode.env_steps for episode in episodes])),
            "episode_reward": float(np.mean(returns)),
            "episode_reward_std": float(np.std(returns)),
            "episodes": len(episodes),
        }
        self._feed(lambda sink: sink.evaluation(mean, rows))

    def video(self, path: Path, frames: Sequence[Frame], fps: float) -> None:
        """Write a video; report it if this machine cannot, and go on."""
        try:
            write_mp4(path, frames, fps)
        except UserError as error:
            self.say(f"no video: {error}")

    def copies(self) -> dict[str, LogCopy]:
        """Make the csv files safe on disk and return what each one holds."""
        assert self._csv is not None
        self._feed(lambda sink: sink.flush())
        return self._csv.copies()

    def close(self) -> None:
        """Close all files and the display."""
        self._feed(lambda sink: sink.close())

    def _feed(self, call: Callable[[Sink], None]) -> None:
        for sink in self._needed:
            call(sink)
        for sink in list(self._optional):
            try:
                call(sink)
            except Exception as error:  # whatever it is, it must not end the run
                self._optional.remove(sink)
                self.say(" ".join(f"note: {error}; the run goes on without it".split()))
