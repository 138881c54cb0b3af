"""Where things are kept that can be made again."""

from __future__ import annotations

import os
from pathlib import Path

from sibe.errors import UserError


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/sibe`` or ``~/.cache/sibe``; it may not exist yet."""
    # The XDG specification has relative paths ignored.
    named, home = Path(os.environ.get("XDG_CACHE_HOME", "")), Path(os.path.expanduser("~"))
    if not (named.is_absolute() or home.is_absolute()):
        raise UserError("there is no home folder: set XDG_CACHE_HOME to one that you can write to")
    return (named if named.is_absolute() else home / ".cache") / "sibe"
