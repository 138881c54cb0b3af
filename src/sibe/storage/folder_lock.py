"""A lock on a folder itself: there is no lock file that somebody could delete."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Self

# Network file systems may lock only files that are open for writing, which a folder never is.
_CANNOT = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)


class FolderLock:
    """An open folder that can be locked; the system frees the lock when the process ends.

    Raises:
        OSError: if ``folder`` cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)

    def take(self, *, shared: bool = False, wait: bool = False) -> bool:
        """Lock the folder; return False where the file system cannot.

        Raises:
            BlockingIOError: if another process holds it and ``wait`` is not set.
        """
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._descriptor, kind | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            return False
        return True

    def close(self) -> None:
        """Free the lock."""
        # Closing, not unlocking: a forked child that gets here must not free its parent's lock.
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
