"""Where the time goes, as a picture: one bar per preset, one color per part of an agent step.

A preset that was also measured in an earlier commit has a bar for each, to one scale.

To draw it again from numbers that are already there, without measuring:
``python -m sibe.bench.picture bench.json picture.png``.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from sibe.bench.results import format_quantity
from sibe.bench.stopwatch import OTHER_PARTS, UPDATE_PARTS
from sibe.errors import UserError
from sibe.storage.atomic import write_atomic

_INK, _GRAY = "#333333", "#9A9A9A"
# The update in shades of blue and green, all the rest in warm colors and grays.
_COLORS = (
    *("#08519C", "#3182BD", "#6BAED6", "#31A354", "#74C476", "#BAE4B3"),
    *("#D94801", "#FD8D3C", "#FDBE85", "#BDBDBD", "#969696", "#636363"),
)
COLORS = dict(zip((*UPDATE_PARTS, *OTHER_PARTS), _COLORS, strict=True))


def write_picture(results: Path, out: Path) -> Path:
    """Draw the parts in ``results``, a file of ``sibe bench --json``, to the PNG file ``out``."""
    check_name(out)
    try:
        parts = json.loads(results.read_text(encoding="utf-8"))["sections"]["training"]["parts"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{results} has no training benchmark: make it with sibe bench --json FILE"
        ) from error
    picture = io.BytesIO()
    # No version in the file: equal results give equal pictures.
    _draw(parts).savefig(picture, format="png", metadata={"Software": None})
    write_atomic(out, picture.getvalue())
    return out


def check_name(out: Path) -> None:
    """Refuse what is not the name of a PNG file."""
    if out.suffix.lower() != ".png":
        raise UserError(f"the picture must be a .png file, not {out.name!r}")


def _draw(parts: dict[str, dict[str, float]]) -> Figure:
    figure = Figure(
        figsize=(10, 1.5 + 0.8 * len(parts)), dpi=100, layout="constrained", facecolor="white"
    )
    axis = figure.add_subplot()
    for row, (name, seconds) in enumerate(parts.items()):
        _draw_bar(axis, row, seconds, _whole(name, parts))
    names = [f"{name}\n{format_quantity(sum(s.values()), 's')}" for name, s in parts.items()]
    axis.set_yticks(range(len(parts)), names, fontsize=9, color=_INK)
    axis.invert_yaxis()
    axis.set_xlim(0, 100)
    earlier = ", the longest of its preset" if any("," in name for name in parts) else ""
    axis.set_xlabel(f"share of an agent step{earlier} (%)", fontsize=9, color=_INK)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(labelsize=8.5, color=_GRAY, labelcolor=_INK, left=False)
    handles, labels = axis.get_legend_handles_labels()
    known = dict(zip(labels, handles, strict=True))
    shown = [part for part in COLORS if part in known]
    figure.legend(
        [known[part] for part in shown],
        shown,
        loc="outside upper center",
        ncols=6,
        frameon=False,
        fontsize=8.5,
        labelcolor=_INK,
    )
    return figure


def _whole(name: str, parts: dict[str, dict[str, float]]) -> float:
    """Return the seconds of the longest bar of this bar's preset: "cpu, commit" and "cpu"."""
    same = [s for other, s in parts.items() if other.split(",")[0] == name.split(",")[0]]
    return max(sum(s.values()) for s in same) or 1.0


def _draw_bar(axis: Any, row: int, seconds: dict[str, float], whole: float) -> None:
    left = 0.0
    for part, color in COLORS.items():
        if part in seconds:
            share = 100 * seconds[part] / whole
            axis.barh(row, share, left=left, color=color, label=part, height=0.6)
            if share >= 4:
                middle, ink = left + share / 2, "white" if sum(to_rgb(color)) < 1.5 else _INK
                axis.text(middle, row, f"{share:.0f}", ha="center", va="center", color=ink)
            left += share


if __name__ == "__main__":
    write_picture(Path(sys.argv[1]), Path(sys.argv[2]))
