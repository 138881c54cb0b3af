"""Checkpoints: atomic, checksummed, and free of pickled classes.

A file is one header line and a payload. The line holds a magic word, the SHA-256 of the JSON that
follows it, and that JSON: step, length and SHA-256 of the payload, the replay episodes that the
checkpoint needs, length and SHA-256 of the logs that belong to it, and the hash of the config that
it was made with. So every byte is covered by
a checksum, and the needs of all checkpoints are known without reading a payload. The payload is
what ``torch.save`` made of plain values and tensors, and is only ever loaded with
``weights_only=True``. Good checksums are not enough: a state that whoever loads it cannot use
counts as damage too, and the checkpoint before it is tried.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch

from sibe.errors import UserError, printable
from sibe.storage.atomic import make_folder, remove_temporary, write_atomic
from sibe.storage.contained_file import UnfitFileError, open_file

_MAGIC = b"sibe-checkpoint-1"
_LONGEST_HEADER = 1 << 24  # a damaged file may have no line end at all
_NAME = re.compile(r"checkpoint_(\d{9}|[1-9]\d{9,})\.pt", re.ASCII)
_STEP = re.compile(r"\D")
_PLAIN = (type(None), bool, int, float, str, bytes)


State = dict[str, Any]
Recorded = tuple[int, str]
"""Length and SHA-256 of what a file began with."""


class Damaged(Exception):
    """A checkpoint that cannot be used, and why."""


class AllDamagedError(UserError):
    """There are checkpoints, and none can be used."""


class _Header(NamedTuple):
    env_step: int
    bytes: int
    sha256: str
    needs: list[int]
    logs: dict[str, list[Any]] = {}  # noqa: RUF012  never changed
    config: str = ""


def save(
    folder: Path,
    env_step: int,
    state: State,
    *,
    needs: Iterable[int] = (),
    logs: Mapping[str, Recorded] | None = None,
    config: str = "",
) -> Path:
    """Write ``state`` as the checkpoint of ``env_step`` and return its path.

    Args:
        folder: where checkpoints are kept; it is made if missing.
        env_step: simulator steps so far, action repeat included.
        state: None, bool, int, float, str, bytes, lists, tuples and dicts of them, and tensors.
        needs: numbers of the replay episodes without which the state is of no use.
        logs: what the run's logs hold, by name.
        config: the hash of the run's config.

    Raises:
        TypeError: naming the place in ``state`` that holds anything else.
        OSError: full disk, read-only folder; older checkpoints are untouched.
    """
    _check_plain(state, "state")
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getbuffer()
    header = _Header(
        env_step,
        len(payload),
        hashlib.sha256(payload).hexdigest(),
        sorted(map(int, needs)),
        {name: list(recorded) for name, recorded in (logs or {}).items()},
        config,
    )
    text = json.dumps(header._asdict()).encode() + b"\n"
    head = b" ".join((_MAGIC, hashlib.sha256(text).hexdigest().encode(), text))
    if not folder.is_dir():
        make_folder(folder)
    path = _path(folder, env_step)
    if path.is_dir():
        _set_aside(path)
    write_atomic(path, b"".join((head, payload)))
    return path


def load_newest(
    folder: Path,
    *,
    map_location: str | torch.device,
    report: Callable[[str], None],
    use: Callable[[int, State], None] = lambda env_step, state: None,
) -> tuple[int, State] | None:
    """Return step and state of the newest good checkpoint, or None if there is none at all.

    A damaged one is named in one line to ``report``, and the one before it is used. No file is
    changed, so a reader without the lock may call this while the run goes on.

    Args:
        folder: where checkpoints are kept.
        map_location: where the tensors go.
        report: takes a line for each checkpoint that is passed over.
        use: takes step and state; it raises ``Damaged`` if they are of no use.

    Raises:
        AllDamagedError: if there are checkpoints and all are damaged; to start from scratch would
            overwrite what is left of the run.
        OSError: if one cannot be read; it may be whole, and going back behind it would spoil the
            logs that belong to it.
    """
    torch.empty(0, device=map_location)  # a device that is not there must not look like damage
    reasons = []
    for name in _no_files(folder):
        report(f"{name} is not a file and is passed over")
    for env_step in reversed(list_steps(folder)):
        path = _path(folder, env_step)
        try:
            try:
                state = _load(path, env_step, map_location)
            except FileNotFoundError:  # the run has just replaced it by a newer one
                return load_newest(folder, map_location=map_location, report=report, use=use)
            use(env_step, state)
            return env_step, state
        except Damaged as damage:
            report(printable(f"{path.name} is damaged ({damage}) and is passed over"))
            reasons.append(f"{path.name}: {damage}")
    if reasons:
        raise AllDamagedError(
            f"every checkpoint in {folder} is damaged ({'; '.join(reasons)}): "
            "put back a copy of one, or start over in another folder with --out"
        )
    return None


def keep_newest(folder: Path, number: int = 2) -> None:
    """Delete the checkpoints older than the newest ``number`` good ones, and temporary files.

    Damaged ones do not count: one that is newer than the checkpoint a run came back to must not
    push out what that run has written since.
    """
    steps = list_steps(folder)
    good = list(islice((step for step in reversed(steps) if _is_good(folder, step)), number))
    if len(good) == number:
        for step in steps:
            if step < good[-1]:
                _path(folder, step).unlink(missing_ok=True)
    remove_temporary(folder)


def list_steps(folder: Path) -> list[int]:
    """Return the env steps of all checkpoints in ``folder``, damaged or not, oldest first."""
    names = (entry.name for entry in _entries(folder) if entry.is_file())
    return sorted(int(_STEP.sub("", name)) for name in names)


def _no_files(folder: Path) -> list[str]:
    return sorted(entry.name for entry in _entries(folder) if not entry.is_file())


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [entry for entry in entries if _NAME.fullmatch(entry.name)]


def set_newer_aside(folder: Path, env_step: int) -> None:
    """Rename the checkpoints after ``env_step``: the run that came back there makes them anew."""
    for step in list_steps(folder):
        if step > env_step:
            _set_aside(_path(folder, step))


def _set_aside(path: Path) -> None:
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in count())
    path.rename(next(name for name in names if not name.exists()))


def recorded(folder: Path) -> tuple[dict[str, Recorded], str]:
    """Return what the newest checkpoint recorded of the run's logs, and the hash of its config.

    Both come from its header alone, and are empty where an older version wrote it.
    """
    for env_step in reversed(list_steps(folder)):
        with suppress(Damaged, OSError):
            header = _open_header(folder, env_step)
            return {
                name: (size, sha256) for name, (size, sha256) in header.logs.items()
            }, header.config
    return {}, ""


def needed_episodes(folder: Path) -> set[int]:
    """Return the replay episodes that the checkpoints in ``folder`` need, from headers alone.

    A checkpoint whose header is damaged can never be loaded again, and so needs nothing.
    """
    needs: set[int] = set()
    for env_step in list_steps(folder):
        with suppress(Damaged):
            needs.update(_open_header(folder, env_step).needs)
    return needs


def _path(folder: Path, env_step: int) -> Path:
    return folder / f"checkpoint_{env_step:09d}.pt"


def _open(path: Path) -> BinaryIO:
    try:
        return open_file(path, within=path.parent.parent)  # the run directory
    except UnfitFileError as error:
        raise Damaged(str(error)) from error


def _open_header(folder: Path, env_step: int) -> _Header:
    with _open(_path(folder, env_step)) as file:
        return _read_header(file, env_step)


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
        raise Damaged("empty")
    magic, _, rest = line.partition(b" ")
    if magic != _MAGIC:
        raise Damaged("not a checkpoint of this version of sibe")
    checksum, _, text = rest.partition(b" ")
    if hashlib.sha256(text).hexdigest().encode() != checksum:
        raise Damaged("the checksum of its header is wrong")
    try:
        header = _Header(**json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged(f"its header does not parse: {error}") from error
    if not _is_sound(header):
        raise Damaged("a value of its header has the wrong type")
    if header.env_step != env_step:
        raise Damaged(f"made at step {header.env_step}, then renamed")
    return header


def _is_sound(header: _Header) -> bool:
    return (
        _natural(header.env_step, header.bytes)
        and isinstance(header.sha256, str)
        and isinstance(header.config, str)
        and isinstance(header.needs, list)
        and _natural(*header.needs)
        and isinstance(header.logs, dict)
        and all(
            isinstance(recorded, list)
            and [type(value) for value in recorded] == [int, str]
            and recorded[0] >= 0
            for recorded in header.logs.values()
        )
    )


def _natural(*values: Any) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


def _read_payload(path: Path, env_step: int) -> bytes:
    with _open(path) as file:
        header = _read_header(file, env_step)
        size = os.fstat(file.fileno()).st_size - file.tell()
        payload = file.read() if size == header.bytes else b""
    if len(payload) != header.bytes:
        raise Damaged(f"{size} bytes long instead of {header.bytes}")
    if hashlib.sha256(payload).hexdigest() != header.sha256:
        raise Damaged("its checksum is wrong")
    return payload


def _is_good(folder: Path, env_step: int) -> bool:
    try:
        _read_payload(_path(folder, env_step), env_step)
    except Damaged:
        return False
    return True


def _load(path: Path, env_step: int, map_location: str | torch.device) -> State:
    payload = io.BytesIO(_read_payload(path, env_step))
    try:
        # torch.save compresses nothing; what does may unpack to more than there is memory.
        if any(member.compress_type for member in zipfile.ZipFile(payload).infolist()):
            raise ValueError("it is compressed")
        payload.seek(0)
        state = torch.load(payload, map_location=map_location, weights_only=True)
    except Exception as error:  # a foreign payload raises whatever its bytes lead torch to
        reason, _, _ = str(error).partition("\n")
        raise Damaged(f"torch cannot load it: {reason[:100]}") from error
    if not isinstance(state, dict):
        raise Damaged(f"it holds a {type(state).__name__}")
    return state
