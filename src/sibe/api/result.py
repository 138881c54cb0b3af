"""What came of a run: its directory, its evaluations and its policy."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sibe.catalogue.run_config import from_json
from sibe.errors import UserError
from sibe.logs.amounts import count
from sibe.logs.csv_log import read_csv
from sibe.policy.load import load_policy
from sibe.policy.trained_policy import TrainedPolicy
from sibe.storage.checkpoint import list_steps
from sibe.storage.run_files import RunFiles

LAST = 5
"""Evaluations that the score is the mean of."""


class Evaluations(NamedTuple):
    """The evaluation curve."""

    env_steps: NDArray[np.int64]
    """``[N]``: when each evaluation began"""
    returns: NDArray[np.float64]
    """``[N]``: its mean return"""


class TrainingResult:
    """A run, finished or stopped; made of any run directory.

    Its files are read when they are asked for.

    Attributes:
        directory: where the run is.
        config: what it is.

    Examples:
        >>> result = sibe.TrainingResult("runs/cartpole_swingup-noise/sibe/seed1")
        >>> result.score, result.finished
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._files = RunFiles(self.directory)
        self.config = from_json(self._files.read_config())

    def __repr__(self) -> str:
        env, last = self.config.env, min(LAST, len(self.evaluations.returns))
        score = f"score {self.score:.1f} of the last {count(last, 'evaluation')}"
        return (
            f"TrainingResult({str(self.directory)!r}: {self.config.method} on {env.task} "
            f"({env.background}), seed {self.config.seed}, env_step {self.env_step} of "
            f"{self.config.schedule.env_steps}, {score if last else 'no score'})"
        )

    @property
    def env_step(self) -> int:
        """How far the run has come, in simulator steps."""
        return int(max(self._column(self._files.train_csv, "frame"), default=0))

    @property
    def finished(self) -> bool:
        """Whether the run has reached its end and was evaluated there; a stopped one was not."""
        saved = list_steps(self._files.checkpoints)
        # Published results have no checkpoints.
        ends = saved or self.evaluations.env_steps.tolist()
        return max(ends, default=0) >= self.config.schedule.env_steps

    @property
    def evaluations(self) -> Evaluations:
        """The evaluation curve: mean return over env steps."""
        steps = self._column(self._files.eval_csv, "frame").astype(np.int64)
        return Evaluations(steps, self._column(self._files.eval_csv, "episode_reward"))

    @property
    def score(self) -> float:
        """Mean return of the last five evaluations (or of as many as there are); nan if none."""
        returns = self.evaluations.returns[-LAST:]
        return float(returns.mean()) if len(returns) else float("nan")

    @cached_property
    def policy(self) -> TrainedPolicy:
        """The policy of the newest checkpoint."""
        return load_policy(self.directory, device=self.config.device)

    def _column(self, path: Path, name: str) -> NDArray[np.float64]:
        try:
            return read_csv(path)[name]
        except (UserError, KeyError):  # the run is younger than its first row
            return np.empty(0)
