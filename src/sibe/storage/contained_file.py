"""Opening the files of a run directory, clip bank or export, which may come from elsewhere.

Only regular files are opened: a pipe would wait for ever, a device may never end. A link may stay
inside the folder but not lead out of it, where reading would leak and writing would destroy what
is none of the folder's. The folder itself, and whatever is above it, may be a link.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, cast

from sibe.errors import UserError

LARGEST = 1 << 34
"""bytes of the largest file that is opened unless a smaller limit is given"""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class UnfitFileError(UserError):
    """A file that is not opened: no regular file, outside of its folder, or too large."""


def open_file(
    path: Path,
    mode: str = "rb",
    *,
    within: Path | None,
    limit: int = LARGEST,
    buffering: int = -1,
) -> BinaryIO:
    """Open ``path`` in a binary ``mode`` that does not truncate: rb, r+b or a+b.

    Args:
        path: the file.
        mode: a+b makes the file if it is missing.
        within: the folder out of which no link may lead; None for a folder of the user's own.
        limit: the most bytes it may have.
        buffering: as for ``open``.

    Raises:
        UnfitFileError: if it is no regular file, lies elsewhere or is too large.
        OSError: if it cannot be opened.
    """
    real = path if within is None else contained(path, within)
    if real.exists():  # before it is opened: that alone may have an effect on a device
        _check(path, os.stat(real), limit)
    file = open(real, mode, buffering, opener=_open if within else None)  # noqa: SIM115
    try:
        _check(path, os.fstat(file.fileno()), limit)
    except BaseException:
        file.close()
        raise
    return cast(BinaryIO, file)


def read_file(path: Path, *, within: Path | None, limit: int = LARGEST) -> bytes:
    """Return the content of ``path``, opened as by ``open_file``."""
    with open_file(path, within=within, limit=limit) as file:
        return file.read()


def contained(path: Path, folder: Path) -> Path:
    """Return where ``path`` really is, which must be in ``folder``; it need not exist."""
    real, root = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if root.parent.name == "snapshots" and (root.parents[1] / "blobs").is_dir():
        root = root.parents[1]  # the Hugging Face Hub's cache is made of links into its blobs
    if not real.is_relative_to(root):
        raise UnfitFileError(
            f"{path} is a link that leads out of {folder}: put a copy of the file in its place"
        )
    return real


def _open(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _check(path: Path, found: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")
        raise UnfitFileError(f"{path} is {kind}, not a file: remove it")
    if found.st_size > limit:
        raise UnfitFileError(
            f"{path} has {found.st_size} bytes, more than the {limit} that are read: remove it"
        )
