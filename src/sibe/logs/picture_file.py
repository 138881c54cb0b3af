"""Figures as PNG files: whole or not at all, and equal bytes for equal figures."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from sibe.errors import UserError
from sibe.logs.plot_style import picture
from sibe.storage.atomic import write_atomic


def check_png(out: Path) -> None:
    """Refuse a name that does not end in .png, before any work is done."""
    if out.suffix.lower() != ".png":
        raise UserError(f"the picture must be a .png file, not {out.name!r}")
    for folder in out.parents:
        if folder.exists():
            if not folder.is_dir():
                raise UserError(f"cannot write {out} ({folder} is a file): choose another")
            return


def write_png(figure: Figure, out: Path) -> None:
    """Write the figure; its folder is made, an earlier file is replaced."""
    write_file(out, picture(figure, "png"))


def write_file(out: Path, data: bytes) -> None:
    """Write ``data`` to ``out``; a disk that does not take it is told in one line."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, data)
    except OSError as error:
        why = error.strerror
        raise UserError(f"cannot write {out} ({why}): make room or choose another") from error
