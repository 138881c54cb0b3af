"""A page as a file."""

from __future__ import annotations

from pathlib import Path

from sibe.errors import UserError
from sibe.logs.picture_file import write_file


def check_html(out: Path) -> None:
    """Refuse a name that does not end in .html, before any work is done."""
    if out.suffix.lower() != ".html":
        raise UserError(f"the page must be an .html file, not {out.name!r}")


def save_page(out: Path, page: bytes) -> None:
    """Write the page, whole or not at all, and say so."""
    write_file(out, page)
    print(f"wrote {out} ({len(page) / 1e6:.1f} MB), which needs no server and no network")
