"""Where things are kept that can be made again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sibe.errors import UserError


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/sibe`` or ``~/.cache/sibe``; it may not exist yet."""
    # The XDG specification has relative paths ignored.
    named, home = Path(os.environ.get("XDG_CACHE_HOME", "")), Path(os.path.expanduser("~"))
    if not (named.is_absolute() or home.is_absolute()):
        raise UserError("there is no home folder: set XDG_CACHE_HOME to one that you can write to")
    return (named if named.is_absolute() else home / ".cache") / "sibe"


def private_folder(name: str) -> Path | None:
    """Return a folder of the cache that nobody else can write to or read, made if missing.

    None if others could put something in it, or in its place: a cache in a shared folder.

    Raises:
        OSError: if it cannot be made.
    """
    cache = cache_folder()
    folder = cache / name
    cache.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    above, own = cache.stat(), folder.lstat()
    is_private = (
        stat.S_ISDIR(own.st_mode)
        and own.st_uid == os.geteuid()
        and not own.st_mode & 0o077
        and (not above.st_mode & stat.S_IWOTH or bool(above.st_mode & stat.S_ISVTX))
    )
    return folder if is_private else None
