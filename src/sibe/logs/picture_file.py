"""Figures as PNG files: whole or not at all, and equal bytes for equal figures."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from sibe.errors import UserError
from sibe.logs.plot_style import picture
from sibe.storage.atomic import make_folder, write_atomic

_EXACT = 8


def check_png(out: Path) -> None:
    """Refuse a name that does not end in .png, before any work is done."""
    if out.suffix.lower() != ".png":
        raise UserError(f"the picture must be a .png file, not {out.name!r}")
    for folder in out.parents:
        if folder.exists():
            if not folder.is_dir():
                raise UserError(f"cannot write {out} ({folder} is a file): choose another")
            return


def write_png(figure: Figure, out: Path, *, most_bytes: float = math.inf) -> None:
    """Write the figure; its folder is made, an earlier file is replaced.

    One of more than ``most_bytes`` is given a palette of 256 colors, which is a third as large.
    """
    data = picture(figure, "png")
    write_file(out, data if len(data) <= most_bytes else _with_palette(data))


def _with_palette(png: bytes) -> bytes:
    small = io.BytesIO()
    with Image.open(io.BytesIO(png)) as opened:
        image = opened.convert("RGB")
    mixed = image.quantize(256 - _EXACT)
    places, pixels = np.array(mixed), np.asarray(image)
    palette = (mixed.getpalette() or [])[: 3 * (256 - _EXACT)]
    # The most frequent colors, which are those of paper and lines, stay as they are.
    colors, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    for color in colors[np.argsort(-counts, kind="stable")[:_EXACT]]:
        places[(pixels == color).all(axis=-1)] = len(palette) // 3
        palette += color.tolist()
    result = Image.fromarray(places, "P")
    result.putpalette(palette)
    result.save(small, format="png", optimize=True)
    return small.getvalue()


def write_file(out: Path, data: bytes) -> None:
    """Write ``data`` to ``out``; a disk that does not take it is told in one line."""
    try:
        make_folder(out.parent)
        write_atomic(out, data)
    except OSError as error:
        why = error.strerror
        raise UserError(f"cannot write {out} ({why}): make room or choose another") from error
