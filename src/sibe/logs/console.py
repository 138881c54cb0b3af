"""The progress of training on the console: a live bar on a terminal, else a line now and then.

Speed and time left come from the last two minutes of this process alone, so that a resumed run
does not count the steps of its first life. Fed once per agent step, it costs next to nothing.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Column

from sibe.logs.amounts import count
from sibe.logs.sink import Row

_WINDOW = 120.0  # seconds that count as recent: long enough to average over an evaluation
_SAMPLE = 1.0  # seconds between two samples of the speed
_REFRESH = 0.25  # seconds between two pictures of the bar
_LINE_SECONDS = 10.0  # between two plain lines


class _Sample(NamedTuple):
    time: float
    env_step: int
    updates: int


class Progress:
    """Shows how far a run is.

    Args:
        total_env_steps: simulator steps of the whole run, action repeat included.
        start_env_step: where this process takes it up.
        episode_return: of the last training episode before that, if any.
        eval_return: of the last evaluation before that, if any.
        stream: where to write (default: standard output).
        quiet: write nothing at all.
        clock: seconds, for tests.
    """

    def __init__(
        self,
        total_env_steps: int,
        *,
        start_env_step: int = 0,
        episode_return: float | None = None,
        eval_return: float | None = None,
        stream: TextIO | None = None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._clock = total_env_steps, clock
        self._stream, self._quiet = stream or sys.stdout, quiet
        self._samples: deque[_Sample] = deque()
        self._shown_time = clock()
        self._env_step, self._agent_step = start_env_step, 0
        self._episode_return, self._eval_return = episode_return, eval_return
        self._is_shown = True  # whether the last line says how things stand
        self._bar = None if quiet else _make_bar(self._stream)
        if self._bar:
            self._bar.add_task("", total=total_env_steps, completed=start_env_step, text="")
            self._bar.start()

    def update(self, env_step: int, agent_step: int, updates: int) -> None:
        """Take the counters of the whole run, and refresh the display if it is time."""
        now = self._clock()
        self._env_step, self._agent_step, self._is_shown = env_step, agent_step, False
        if not self._samples or now - self._samples[-1].time >= _SAMPLE:
            self._samples.append(_Sample(now, env_step, updates))
            while len(self._samples) > 2 and now - self._samples[1].time >= _WINDOW:
                self._samples.popleft()
        if now - self._shown_time >= (_REFRESH if self._bar else _LINE_SECONDS):
            self._show(now)

    def episode(self, row: Row) -> None:
        """Take the return of a training episode; the next refresh shows it."""
        self._episode_return, self._is_shown = row["episode_reward"], False

    def evaluation(self, row: Row, episodes: Sequence[Row]) -> None:
        """Write a line about an evaluation."""
        self._eval_return, self._is_shown = row["episode_reward"], False
        spread = f"{row['episode_reward']:.1f} ± {row['episode_reward_std']:.1f}"
        episodes_played = count(row["episodes"], "episode")
        self.line(f"eval at env_step {row['frame']}: return {spread} ({episodes_played})")

    def flush(self) -> None:
        """No-op: nothing is queued."""

    def line(self, text: str) -> None:
        """Write a message, above the bar if there is one."""
        if self._bar:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        elif not self._quiet:
            print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Show the last state and leave the terminal as it was."""
        if self._bar or not self._is_shown:
            self._show(self._clock())
        if self._bar:
            self._bar.stop()

    def _show(self, now: float) -> None:
        self._shown_time, self._is_shown = now, True
        done = min(self._env_step, self._total)  # the last episode is played out
        steps = f"{self._env_step}/{self._total}" if done == self._env_step else f"{self._env_step}"
        if self._bar:
            text = f"{steps} env steps  {self._state('  ')}"
            self._bar.update(self._bar.task_ids[0], completed=done, text=text)
            self._bar.refresh()
        else:
            percent = 100 * done // self._total
            agent_step = f"agent_step {self._agent_step}"
            self.line(f"env_step {steps} ({percent} %) {agent_step} {self._state(' ')}")

    def _state(self, gap: str) -> str:
        parts = [f"return {_number(self._episode_return)}", f"eval {_number(self._eval_return)}"]
        if len(self._samples) > 1:
            first, last = self._samples[0], self._samples[-1]
            seconds = last.time - first.time
            parts.append(f"{(last.updates - first.updates) / seconds:.1f} updates/s")
            if last.env_step > first.env_step:
                left = (self._total - self._env_step) * seconds / (last.env_step - first.env_step)
                parts.append(f"{duration(left)} left")
        return gap.join(parts)


def _make_bar(stream: TextIO) -> RichProgress | None:
    console = Console(file=stream)
    if not stream.isatty() or console.is_dumb_terminal:
        return None
    text = TextColumn("{task.fields[text]}", markup=False, table_column=Column(no_wrap=True))
    # Drawn by update alone: a thread would compete with learning for the interpreter.
    return RichProgress(BarColumn(None), text, console=console, auto_refresh=False, expand=True)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def duration(seconds: float) -> str:
    """Return the two leading units: 41s, 9m12s, 3h05m, 2d01h."""
    minutes, s = divmod(round(max(0.0, seconds)), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days}d{h:02}h"
    if hours:
        return f"{hours}h{m:02}m"
    return f"{m}m{s:02}s" if m else f"{s}s"
