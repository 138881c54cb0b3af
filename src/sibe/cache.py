"""Where things are kept that can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/sibe`` or ``~/.cache/sibe``; it may not exist yet."""
    # The XDG specification has relative paths ignored.
    root = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (root if root.is_absolute() else Path(os.path.expanduser("~/.cache"))) / "sibe"
