"""What is in a folder, to compare it before and after."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Container
from pathlib import Path


def folder_state(folder: Path, leave_out: Container[str] = ()) -> dict[str, str]:
    """Return what each path below ``folder`` is: the hash of a file, the target of a link, a kind.

    ``leave_out`` names paths, relative to it, that do not count, with all that is below them.
    """
    found: dict[str, str] = {}
    for place, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            path = Path(place, name)
            relative = str(path.relative_to(folder))
            if relative in leave_out:
                if name in folders:
                    folders.remove(name)
                continue
            found[relative] = _what(path)
    return found


def _what(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"link to {os.readlink(path)}"
    if stat.S_ISREG(mode):
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return f"kind {stat.S_IFMT(mode):o}"


def is_temporary(name: str) -> bool:
    """Tell whether a file of that name is what a killed command may leave for the next one."""
    return name.endswith((".sibe-tmp", ".npz.tmp", ".tmp", ".old"))
