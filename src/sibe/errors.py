"""The one exception that users see: what is wrong and how to fix it, in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can fix. The command line prints it as one line and exits with 2."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C, with one line that says how things stand; the command line exits with 130."""


class InUseError(UserError):
    """Another process holds the run directory; it may be free again in a moment."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean a, b?" for the known names closest to ``name``, or ""."""
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {', '.join(close)}?" if close else ""
