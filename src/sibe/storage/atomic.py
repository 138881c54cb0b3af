"""Write a file whole or not at all.

Everything a run must find again after a crash goes through ``write_atomic``: the bytes reach the
disk under a temporary name first, and the rename that follows is one step to every reader. A
process killed in between leaves the old file and a temporary one, which ``remove_temporary`` finds.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

SUFFIX = ".sibe-tmp"
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)


def write_atomic(path: Path, data: bytes) -> None:
    """Make ``data`` the content of ``path``, on disk when this returns.

    Raises:
        OSError: naming ``path``; the temporary file is gone and ``path`` as it was, unless only
            the last sync failed, when ``path`` is new but might not outlive a power cut.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)  # what the user knows; a failed write names no file at all
        raise


def remove_temporary(folder: Path) -> None:
    """Delete what a killed ``write_atomic`` left in ``folder``; nobody may be writing there."""
    for path in folder.glob(f"*{SUFFIX}"):
        path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make ``path`` and what is missing above it, on disk when this returns.

    A file is safe only once every folder above it is.
    """
    above = path.absolute().parents
    missing = sum(not folder.exists() for folder in above)
    path.mkdir(parents=True, exist_ok=True)
    # The last one even if it was there: its maker may have been killed before this.
    for folder in above[: missing + 1]:
        with suppress(PermissionError):  # one may write in a folder that one may not read
            sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` outlive a power cut, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:  # some network file systems sync no folders
            raise
    finally:
        os.close(descriptor)
