"""Checkpoints: atomic, checksummed, and free of pickled classes.

A file is one header line and a payload. The line holds a magic word, the SHA-256 of the JSON that
follows it, and that JSON: step, length and SHA-256 of the payload, and the replay episodes that
the checkpoint needs. So every byte is covered by a checksum, and the needs of all checkpoints are
known without reading a payload. The payload is what ``torch.save`` made of plain values and
tensors, and is only ever loaded with ``weights_only=True``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import torch

from sibe.errors import UserError
from sibe.storage.atomic import remove_temporary, write_atomic

_MAGIC = b"sibe-checkpoint-1"
_LONGEST_HEADER = 1 << 24  # a damaged file may have no line end at all
_NAME = re.compile(r"checkpoint_(\d{9,})\.pt")
_PLAIN = (type(None), bool, int, float, str, bytes)


class _Damaged(Exception):
    """A checkpoint that cannot be used, and why."""


class _Header(NamedTuple):
    env_step: int
    bytes: int
    sha256: str
    needs: list[int]


def save(folder: Path, env_step: int, state: dict[str, Any], *, needs: Iterable[int] = ()) -> Path:
    """Write ``state`` as the checkpoint of ``env_step`` and return its path.

    Args:
        folder: where checkpoints are kept; it is made if missing.
        env_step: simulator steps so far, action repeat included.
        state: None, bool, int, float, str, bytes, lists, tuples and dicts of them, and tensors.
        needs: numbers of the replay episodes without which the state is of no use.

    Raises:
        TypeError: naming the place in ``state`` that holds anything else.
        OSError: full disk, read-only folder; older checkpoints are untouched.
    """
    _check_plain(state, "state")
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    header = _Header(
        env_step, len(payload), hashlib.sha256(payload).hexdigest(), sorted(map(int, needs))
    )
    text = json.dumps(header._asdict()).encode() + b"\n"
    head = b" ".join((_MAGIC, hashlib.sha256(text).hexdigest().encode(), text))
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, env_step)
    write_atomic(path, b"".join((head, payload)))
    return path


def load_newest(
    folder: Path, *, map_location: str | torch.device, report: Callable[[str], None]
) -> tuple[int, dict[str, Any]] | None:
    """Return step and state of the newest good checkpoint, or None if there is none at all.

    A damaged one is named in one line to ``report``, and the one before it is used. No file is
    changed, so a reader without the lock may call this while the run goes on.

    Raises:
        UserError: if there are checkpoints and all are damaged; to start from scratch would
            overwrite what is left of the run.
        OSError: if one cannot be read; it may be whole, and going back behind it would spoil the
            logs that belong to it.
    """
    torch.empty(0, device=map_location)  # a device that is not there must not look like damage
    reasons = []
    for env_step in reversed(list_steps(folder)):
        path = _path(folder, env_step)
        try:
            return env_step, _load(path, env_step, map_location)
        except FileNotFoundError:  # the run has just replaced it by a newer one
            return load_newest(folder, map_location=map_location, report=report)
        except _Damaged as damage:
            report(f"{path.name} is damaged ({damage}) and is passed over")
            reasons.append(f"{path.name}: {damage}")
    if reasons:
        raise UserError(
            f"every checkpoint in {folder} is damaged ({'; '.join(reasons)}): "
            "put back a copy of one, or start over in another folder with --out"
        )
    return None


def keep_newest(folder: Path, count: int = 2) -> None:
    """Delete the checkpoints older than the newest ``count`` good ones, and temporary files.

    Damaged ones do not count: one that is newer than the checkpoint a run came back to must not
    push out what that run has written since.
    """
    steps = list_steps(folder)
    good = list(islice((step for step in reversed(steps) if _is_good(folder, step)), count))
    if len(good) == count:
        for step in steps:
            if step < good[-1]:
                _path(folder, step).unlink(missing_ok=True)
    remove_temporary(folder)


def list_steps(folder: Path) -> list[int]:
    """Return the env steps of all checkpoints in ``folder``, damaged or not, oldest first."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        matches = [_NAME.fullmatch(entry.name) for entry in entries if entry.is_file()]
    return sorted(int(match[1]) for match in matches if match)


def needed_episodes(folder: Path) -> set[int]:
    """Return the replay episodes that the checkpoints in ``folder`` need, from headers alone.

    A checkpoint whose header is damaged can never be loaded again, and so needs nothing.
    """
    needs: set[int] = set()
    for env_step in list_steps(folder):
        try:
            with _path(folder, env_step).open("rb") as file:
                needs.update(_read_header(file, env_step).needs)
        except _Damaged:
            continue
    return needs


def _path(folder: Path, env_step: int) -> Path:
    return folder / f"checkpoint_{env_step:09d}.pt"


def _check_plain(value: Any, where: str) -> None:
    # Exact types: np.float64 is a float to isinstance, and a pickled class in the file.
    if type(value) in (dict, OrderedDict):
        for key, item in value.items():
            _check_plain(key, f"a key of {where}")
            _check_plain(item, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            _check_plain(item, f"{where}[{index}]")
    elif type(value) not in (*_PLAIN, torch.Tensor):
        raise TypeError(
            f"{where} is a {type(value).__module__}.{type(value).__qualname__}: "
            "a checkpoint holds only plain values, lists, tuples, dicts and tensors"
        )


def _read_header(file: BinaryIO, env_step: int) -> _Header:
    line = file.readline(_LONGEST_HEADER)
    if not line:
        raise _Damaged("empty")
    magic, _, rest = line.partition(b" ")
    if magic != _MAGIC:
        raise _Damaged("not a checkpoint of this version of sibe")
    checksum, _, text = rest.partition(b" ")
    if hashlib.sha256(text).hexdigest().encode() != checksum:
        raise _Damaged("the checksum of its header is wrong")
    header = _Header(**json.loads(text))
    if header.env_step != env_step:
        raise _Damaged(f"made at step {header.env_step}, then renamed")
    return header


def _read_payload(path: Path, env_step: int) -> bytes:
    with path.open("rb") as file:
        header = _read_header(file, env_step)
        payload = file.read()
    if len(payload) != header.bytes:
        raise _Damaged(f"{len(payload)} bytes long instead of {header.bytes}")
    if hashlib.sha256(payload).hexdigest() != header.sha256:
        raise _Damaged("its checksum is wrong")
    return payload


def _is_good(folder: Path, env_step: int) -> bool:
    try:
        _read_payload(_path(folder, env_step), env_step)
    except _Damaged:
        return False
    return True


def _load(path: Path, env_step: int, map_location: str | torch.device) -> dict[str, Any]:
    payload = io.BytesIO(_read_payload(path, env_step))
    try:
        state = torch.load(payload, map_location=map_location, weights_only=True)
    except Exception as error:  # a foreign payload raises whatever its bytes lead torch to
        reason, _, _ = str(error).partition("\n")
        raise _Damaged(f"torch cannot load it: {reason[:100]}") from error
    return cast("dict[str, Any]", state)
