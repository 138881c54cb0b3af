"""Finished episodes on disk: one file each, written once and atomically.

A file is an uncompressed .npz, readable by NumPy alone. Its zip checksums tell a damaged file from
a whole one. Names carry the number of the episode, counted from the start of the run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import zipfile
from collections.abc import Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sibe.envs.sensors import Observation
from sibe.errors import UserError
from sibe.storage.atomic import sync_folder
from sibe.storage.contained_file import UnfitFileError, read_file

_FRAMES = "frames"
_FILE = re.compile(r"episode_(\d{6,})\.npz(\.tmp)?")


_HOW = "put back a copy of it, or start the run in a new folder"


class EpisodeError(UserError):
    """An episode file that is missing, damaged or of another episode."""


class Episode(NamedTuple):
    """``T`` transitions of one episode; transition ``t`` leads from frame ``t`` to ``t + 1``."""

    frames: Observation  # uint8 [T+1, H, W, C], single; or by sensor, vectors float32 [T+1, S]
    action: NDArray[np.float32]  # [T, A]
    reward: NDArray[np.float32]  # [T]
    discount: NDArray[np.float32]  # [T]


def episode_path(folder: Path, number: int) -> Path:
    """Where episode ``number`` is kept in ``folder``."""
    return folder / f"episode_{number:06d}.npz"


def write_episode(folder: Path, number: int, episode: Episode) -> Path:
    """Write ``episode`` into ``folder``, wholly or not at all, and return its path."""
    path = episode_path(folder, number)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            np.savez(
                file,
                **_members(episode.frames),
                action=episode.action,
                reward=episode.reward,
                discount=episode.discount,
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UserError(
            f"cannot write {path} ({error.strerror or error}): "
            "make room or the folder writable, then resume the run"
        ) from error
    return path


def read_episode(path: Path) -> Episode:
    """Read what `write_episode` wrote; a missing or damaged file is an `EpisodeError`."""
    try:
        data = read_file(path, within=path.parent.parent)  # the run directory
    except FileNotFoundError:
        raise EpisodeError(f"{path} is missing: {_HOW}") from None
    except UnfitFileError as error:
        raise EpisodeError(str(error)) from error
    try:
        # Members are read whole, not through np.load, so that all their checksums are compared.
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(member.compress_type for member in archive.infolist()):
                raise ValueError("it is compressed")  # to unpack it may take any amount of memory
            members = {
                name.removesuffix(".npy"): np.lib.format.read_array(
                    io.BytesIO(archive.read(name)), allow_pickle=False
                )
                for name in archive.namelist()
            }
        episode = Episode(_observation(members), *(members[name] for name in Episode._fields[1:]))
    except Exception as error:  # a broken zip archive fails in a dozen ways, all with one meaning
        problem = f"is damaged ({str(error)[:100]})"  # zipfile quotes names, of any length
    else:
        if _consistent(episode):
            return episode
        problem = "is damaged (its arrays do not fit each other)"
    raise EpisodeError(f"{path} {problem}: {_HOW}")


def prune(folder: Path, keep: Set[int]) -> None:
    """Delete the episodes in ``folder`` that are not in ``keep``, and half-written files."""
    for path in folder.iterdir():
        match = _FILE.fullmatch(path.name)
        if match and (match[2] or int(match[1]) not in keep):
            path.unlink(missing_ok=True)


def _members(frames: Observation) -> dict[str, Any]:
    """Return what the frames are called in a file: ``frames``, or ``frames.<sensor>`` each."""
    if not isinstance(frames, dict):
        return {_FRAMES: frames}
    return {f"{_FRAMES}.{name}": readings for name, readings in frames.items()}


def _observation(members: dict[str, NDArray[Any]]) -> Observation:
    if _FRAMES in members:
        return members[_FRAMES]
    prefix = f"{_FRAMES}."
    found = {n.removeprefix(prefix): m for n, m in members.items() if n.startswith(prefix)}
    if not found:
        raise KeyError(_FRAMES)
    return found


def _consistent(episode: Episode) -> bool:
    frames, action, reward, discount = episode
    steps = len(reward) if reward.ndim == 1 else -1
    sensors = list(frames.values()) if isinstance(frames, dict) else [frames]
    kinds = ((np.uint8, 4), (np.float32, 2)) if isinstance(frames, dict) else ((np.uint8, 4),)
    return (
        all((one.dtype, one.ndim) in kinds for one in sensors)
        and all(array.dtype == np.float32 for array in (action, reward, discount))
        and action.ndim == 2
        and discount.shape == reward.shape
        and len(action) == steps
        and all(len(one) == steps + 1 for one in sensors)
    )
