"""The one exception that users see: what is wrong and how to fix it, in one line."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can fix. The command line prints it as one line and exits with 2."""

    def __str__(self) -> str:
        """Return the line; names in it may come from files, so it is made printable."""
        return printable(super().__str__())


class Stopped(KeyboardInterrupt):
    """Ctrl-C, with one line that says how things stand; the command line exits with 130."""


class InUseError(UserError):
    """Another process holds the run directory; it may be free again in a moment."""


def printable(text: str) -> str:
    """Return ``text`` as one line without control characters, which could steer a terminal."""
    return "".join("?" if unicodedata.category(c) in _CONTROL else c for c in text)


_CONTROL = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's control, format (which may reverse a line), surrogate and separator characters."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean a, b?" for the known names closest to ``name``, or ""."""
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {', '.join(close)}?" if close else ""
