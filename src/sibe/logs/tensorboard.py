"""The scalars of a run for TensorBoard; the x axis is env_step (action repeat included).

A thin layer over torch's SummaryWriter that makes resuming clean: what an earlier attempt wrote
after the point of resumption is hidden by TensorBoard, so that curves do not fold back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from sibe.logs.sink import Row, scalars


class TensorBoardLog:
    """Writes scalars into ``folder``.

    Args:
        folder: made if missing; each attempt of a run adds one event file.
        resume_at: env_step of the checkpoint that the run continues from; None hides all that an
            attempt without a checkpoint has left.
    """

    def __init__(self, folder: Path, *, resume_at: int | None) -> None:
        # Imported here: it takes over a second, and most commands never log.
        from torch.utils.tensorboard import SummaryWriter

        # purge_step hides its own step too, but events at the checkpoint's step came before it.
        purge_step = 0 if resume_at is None else resume_at + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge_step)

    def episode(self, row: Row) -> None:
        """Write a training episode under ``train/``."""
        self._write("train", row)

    def evaluation(self, row: Row, episodes: Sequence[Row]) -> None:
        """Write the means of an evaluation under ``eval/``."""
        self._write("eval", row)

    def _write(self, prefix: str, row: Row) -> None:
        for name, value in scalars(row).items():
            self._writer.add_scalar(f"{prefix}/{name}", value, row["frame"])

    def flush(self) -> None:
        """Write what is queued: before a checkpoint, whose resumption does not log it again."""
        self._writer.flush()

    def close(self) -> None:
        """Write what is queued and close the file."""
        with contextlib.suppress(OSError):  # a full disk has been reported already
            self._writer.close()
