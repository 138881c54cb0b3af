"""Names that may come from files, in Markdown and LaTeX: shown as they are, never as markup."""

from __future__ import annotations

import html

from sibe.errors import printable

_MARKDOWN = str.maketrans({character: "\\" + character for character in "\\`*[]|"})
_LATEX = str.maketrans(
    {
        **{character: "\\" + character for character in "_%&#${}"},
        "\\": r"\textbackslash{}",
        "^": r"\^{}",
        "~": r"\~{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
        "×": r"$\times$",
    }
)


def markdown(text: str) -> str:
    """Return ``text`` for a line or a table's cell of Markdown, in which HTML would be live."""
    return html.escape(printable(text).translate(_MARKDOWN), quote=False)


def latex(text: str) -> str:
    """Return ``text`` for LaTeX."""
    return printable(text).translate(_LATEX)
