"""The numbers of a run as CSV files that equal runs write byte for byte, killed in between or not.

The column names are those of the DrQ code family, so that its plotting scripts read our runs:
``frame`` is env_step (simulator steps, action repeat included), ``step`` is agent_step.
A row is one write of one whole line; a checkpoint stores ``CsvLog.copy``, and resuming from it
starts with ``rewind``, which cuts off every row that came later and repairs what was there before.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from numbers import Integral
from pathlib import Path
from typing import NamedTuple, Self, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from sibe.errors import UserError
from sibe.storage.atomic import sync_folder, write_atomic
from sibe.storage.contained_file import open_file, read_file

_DRQ_COLUMNS = ("frame", "step", "episode", "episode_length", "episode_reward", "total_time")
TRAIN_COLUMNS = (*_DRQ_COLUMNS, "fps", "buffer_size", "updates")
"""train.csv, a row per training episode; the agent's metrics follow as further columns.

frame, step: when the episode ended. episode: training episodes finished so far. episode_length:
env steps. episode_reward: return, that is the task's own reward, undiscounted and without bonus.
total_time: seconds of training so far, those before a resume included. fps: env steps per second
of this episode. buffer_size: transitions in the replay. updates: gradient updates so far.
"""

EVAL_COLUMNS = (*_DRQ_COLUMNS, "episode_reward_std", "episodes")
"""eval.csv, a row per evaluation.

frame, step, episode, total_time: of training, at that time. episode_length, episode_reward,
episode_reward_std: mean length, mean return and its deviation over so many ``episodes``.
"""

EVAL_EPISODE_COLUMNS = ("frame", "step", "eval_episode", "seed", "episode_length", "episode_reward")
"""eval_episodes.csv, a row per evaluation episode.

frame, step: of training. eval_episode: index from 0. seed: what the environment was reset with.
"""

WALL_CLOCK_COLUMNS = ("total_time", "fps")
"""The only columns that may differ between two runs of one config on one machine."""


_LARGEST = 1 << 28  # bytes; a million rows
_GREATEST = 1e100  # far above what float32 networks log, and its square is finite
_LAST_FRAME = 2**53  # floats count no further


class LogCopy(NamedTuple):
    """A csv file as it was when a checkpoint was written; fit for ``torch.save``."""

    size: int
    """bytes"""
    sha256: str
    packed: bytes
    """its content, compressed by zlib"""

    @classmethod
    def of(cls, content: bytes) -> LogCopy:
        """Return the copy of a file that holds ``content``."""
        return cls(len(content), hashlib.sha256(content).hexdigest(), zlib.compress(content, 1))

    def content(self) -> bytes:
        """Return what the file held; a copy that is damaged is a ValueError."""
        try:
            content = zlib.decompressobj().decompress(self.packed, min(self.size, _LARGEST) + 1)
        except zlib.error as error:
            raise ValueError(f"its copy of a csv file is damaged: {error}") from error
        if len(content) != self.size or hashlib.sha256(content).hexdigest() != self.sha256:
            raise ValueError("its copy of a csv file is damaged")
        return content


class CsvLog:
    """Appends rows to a CSV file; a half-written last line, left by a kill, is dropped first."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, tuple(columns)
        header = (",".join(self.columns) + "\n").encode()
        with _as_user_error(path):
            # Unbuffered: a row is in the file as soon as it is written, whole or not at all.
            self._file = open_file(path, "a+b", within=path.parent, limit=_LARGEST, buffering=0)
            self._file.seek(0)
            content = self._file.read()
            end = content.find(b"\n") + 1
            if content[:end] != header and not (end == 0 and header.startswith(content)):
                self._file.close()
                raise UserError(f"{path} has other columns than this run: choose another folder")
            self._position = content.rfind(b"\n") + 1
            self._file.truncate(self._position)
        # Both grow row by row, so that a checkpoint need not read the file again.
        self._hash, self._packer, self._packed = hashlib.sha256(), zlib.compressobj(1), bytearray()
        self._remember(content[: self._position])
        self._is_new = not end
        if self._is_new:
            self._write(header)

    def append(self, row: Mapping[str, SupportsFloat | None]) -> None:
        """Write one row; columns that are missing or None stay empty, unknown ones are an error."""
        if unknown := row.keys() - set(self.columns):
            raise ValueError(f"{self.path.name} has no column {', '.join(sorted(unknown))}")
        self._write((",".join(_text(row.get(name)) for name in self.columns) + "\n").encode())

    def _write(self, line: bytes) -> None:
        with _as_user_error(self.path):
            if self._file.write(line) != len(line):  # the disk took a part
                self._file.truncate(self._position)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._position += len(line)
        self._remember(line)

    def _remember(self, written: bytes) -> None:
        self._hash.update(written)
        self._packed += self._packer.compress(written)

    def copy(self) -> LogCopy:
        """Return what the file holds: what ``rewind`` takes on resume."""
        packed = bytes(self._packed) + self._packer.copy().flush()
        return LogCopy(self._position, self._hash.hexdigest(), packed)

    @property
    def position(self) -> int:
        """Bytes written so far, header included: what ``truncate`` takes on resume."""
        return self._position

    def sync(self) -> None:
        """Return once all rows are on the disk."""
        with _as_user_error(self.path):
            os.fsync(self._file.fileno())
            if self._is_new:
                sync_folder(self.path.parent)
                self._is_new = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def truncate(path: Path, position: int) -> None:
        """Cut the file back to ``position``, as stored in a checkpoint; 0 is before the header."""
        if position == 0 and not path.exists():
            return
        with _as_user_error(path), open_file(path, "r+b", within=path.parent) as file:
            file.seek(max(0, position - 1))
            if position and file.read(1) != b"\n":
                raise UserError(f"{path} does not fit its checkpoint: restore it or start anew")
            file.truncate(position)
            os.fsync(file.fileno())


def rewind(path: Path, copy: LogCopy) -> str:
    """Make the file what it was when ``copy`` was made.

    Rows that came later are cut off. A file that is missing or differs is written anew.

    Returns:
        What was wrong with the file; "" for nothing.
    """
    content = copy.content()
    damage = difference(path, copy.size, copy.sha256, lambda: content)
    if not damage:
        CsvLog.truncate(path, copy.size)
    else:
        with _as_user_error(path):
            write_atomic(path, content)
    return damage


def difference(path: Path, size: int, sha256: str, content: Callable[[], bytes]) -> str:
    """Return what is wrong with a file of which a checkpoint knows the beginning, "" for nothing.

    Args:
        path: the file; rows that came later do not count.
        size: bytes that are known.
        sha256: of these bytes.
        content: returns these bytes, to find the line that differs; may raise a ValueError.
    """
    try:
        found = read_file(path, within=path.parent, limit=_LARGEST)[:size]
    except FileNotFoundError:
        return f"{path.name} is missing" if size else ""
    if hashlib.sha256(found).hexdigest() == sha256:
        return ""
    try:
        lines = zip_longest(found.split(b"\n"), content().split(b"\n"))
    except ValueError:
        return f"{path.name} is damaged"
    number = next(n for n, (here, there) in enumerate(lines, 1) if here != there)
    return f"{path.name}, line {number} is damaged"


def count_lines(path: Path) -> int:
    """Return how many whole lines the file has, the header included; 0 if it is missing."""
    try:
        return read_file(path, within=path.parent, limit=_LARGEST).count(b"\n")
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def read_csv(path: Path) -> dict[str, NDArray[np.float64]]:
    """Return columns by name, [rows] each; an empty field is nan, a half-written row left out."""
    try:
        data = read_file(path, within=path.parent, limit=_LARGEST)
        lines = data.decode().replace("\r\n", "\n").split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path} ({error}): give the folder of a run") from error
    names = lines[0].split(",") if lines else []
    if not names or not all(name[:1].isalpha() for name in names):
        raise UserError(f"{path} has no header line: it is not a log of sibe, or is not begun yet")
    table = np.empty((len(lines) - 1, len(names)))
    for number, (row, line) in enumerate(zip(table, lines[1:], strict=True), start=2):
        try:
            row[:] = np.reshape([float(field or "nan") for field in line.split(",")], row.shape)
        except ValueError:
            raise UserError(f"{path}, line {number} is damaged: remove that line") from None
    return dict(zip(names, table.T, strict=True))


def last_return(path: Path) -> float | None:
    """Return the newest ``episode_reward`` of a log; None if it has no rows yet."""
    returns = read_csv(path)["episode_reward"]
    return float(returns[-1]) if returns.size else None


def read_results(path: Path) -> dict[str, NDArray[np.float64]]:
    """Return the rows that have a step and a return; {} if there are none, or no file.

    Raises:
        UserError: also for numbers that no run can have logged.
    """
    if not count_lines(path):
        return {}
    table = read_csv(path)
    if missing := {"frame", "episode_reward"} - table.keys():
        raise UserError(f"{path} has no column {', '.join(sorted(missing))}: it is no log of sibe")
    rows = np.stack(list(table.values()), axis=1)
    odd = np.isfinite(rows) & (np.abs(rows) > _GREATEST)
    frame = table["frame"]
    wrong = odd.any(axis=1) | (frame < 0) | (np.isfinite(frame) & (frame > _LAST_FRAME))
    if wrong.any():
        number = int(wrong.argmax()) + 2
        raise UserError(f"{path}, line {number} is damaged: it holds a number that cannot be")
    whole = np.isfinite(frame) & np.isfinite(table["episode_reward"])
    return {name: column[whole] for name, column in table.items()} if whole.any() else {}


def _text(value: SupportsFloat | None) -> str:
    if value is None:
        return ""
    # The repr of numpy's own scalars is not a number.
    return repr(int(value) if isinstance(value, Integral) else float(value))


@contextlib.contextmanager
def _as_user_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror
        raise UserError(f"cannot write {path} ({why}): make room or choose another") from error
