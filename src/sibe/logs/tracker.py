"""A sink for an experiment tracker, on a thread of its own.

A tracker may be offline, slow or broken. So the training loop only ever puts a row into a queue:
what goes wrong in the thread is raised by the next call, and the recorder then drops the sink.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from sibe.logs.sink import Row, scalars

_BACKLOG = 10_000  # rows that wait at most: many hours of training
_PATIENCE = 20.0  # seconds that the end of a run waits for the tracker


class TrackedRun(Protocol):
    """A run that is open on a tracker."""

    def log(self, values: dict[str, float], env_step: int) -> None:
        """Add values at an env step, which may be before the last one."""

    def finish(self) -> None:
        """Send what is queued and end the run."""


class TrackerError(Exception):
    """The tracker failed, and why."""


class Tracker:
    """Logs ``train/…`` and ``eval/…`` over env steps.

    Args:
        name: the tracker's, for messages.
        start: opens the run; called in the thread, at the first row.
        patience: seconds that ``close`` waits.
    """

    def __init__(
        self, name: str, start: Callable[[], TrackedRun], *, patience: float = _PATIENCE
    ) -> None:
        self._name, self._start, self._patience = name, start, patience
        self._queue: queue.Queue[tuple[dict[str, float], int] | None] = queue.Queue(_BACKLOG)
        # A daemon: a process that is done does not wait for a tracker that hangs.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._error: BaseException | None = None

    def episode(self, row: Row) -> None:
        """Log a training episode."""
        self._send("train", row)

    def evaluation(self, row: Row, episodes: Sequence[Row]) -> None:
        """Log the means of an evaluation."""
        self._send("eval", row)

    def flush(self) -> None:
        """No-op: a checkpoint does not wait for a tracker."""

    def close(self) -> None:
        """End the run on the tracker, within the time given."""
        if self._thread.ident is None:  # nothing was logged
            return
        self._put(None)
        self._thread.join(self._patience)
        self._raise_error()
        if self._thread.is_alive():
            raise TrackerError(f"{self._name} did not finish within {self._patience:.0f} seconds")

    def _send(self, prefix: str, row: Row) -> None:
        self._raise_error()
        values = {f"{prefix}/{name}": value for name, value in scalars(row).items()}
        self._put((values, int(row["frame"])))
        if self._thread.ident is None:
            self._thread.start()

    def _put(self, item: tuple[dict[str, float], int] | None) -> None:
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            raise TrackerError(f"{self._name} takes no more rows") from None

    def _raise_error(self) -> None:
        if (error := self._error) is not None:
            raise TrackerError(f"{self._name} failed ({type(error).__name__}: {error})") from error

    def _work(self) -> None:
        try:
            run = self._start()
            while (item := self._queue.get()) is not None:
                run.log(*item)
            run.finish()
        except (Exception, SystemExit) as error:
            self._error = error
