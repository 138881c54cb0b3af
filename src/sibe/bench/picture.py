"""Where the time goes, as a picture: one bar per preset, one colour per part of an agent step."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sibe.bench.stopwatch import OTHER_PARTS, UPDATE_PARTS
from sibe.errors import UserError
from sibe.training.atomic import write_atomic

_INK, _GREY = "#333333", "#9A9A9A"
# The update in shades of blue and green, all the rest in warm colours and greys.
_COLOURS = (
    *("#08519C", "#3182BD", "#6BAED6", "#31A354", "#74C476", "#BAE4B3"),
    *("#D94801", "#FD8D3C", "#FDBE85", "#BDBDBD", "#969696", "#636363"),
)
COLOURS = dict(zip((*UPDATE_PARTS, *OTHER_PARTS), _COLOURS, strict=True))


def write_picture(result: dict[str, Any], out: Path) -> Path:
    """Draw the parts in ``result`` (of ``sibe bench --json``) to the PNG file ``out``."""
    if out.suffix.lower() != ".png":
        raise UserError(f"the picture must be a .png file, not {out.name!r}")
    parts = result.get("sections", {}).get("training", {}).get("parts")
    if not parts:
        raise UserError("these results lack the training benchmark: sibe bench --only training")
    picture = io.BytesIO()
    # No version in the file: equal results give equal pictures.
    _draw(parts).savefig(picture, format="png", metadata={"Software": None})
    write_atomic(out, picture.getvalue())
    return out


def _draw(parts: dict[str, dict[str, float]]) -> Figure:
    figure = Figure(
        figsize=(10, 1.5 + 0.8 * len(parts)), dpi=100, layout="constrained", facecolor="white"
    )
    axis = figure.add_subplot()
    for row, seconds in enumerate(parts.values()):
        _draw_bar(axis, row, seconds)
    names = [f"{name}\n{_per_step(seconds)}" for name, seconds in parts.items()]
    axis.set_yticks(range(len(parts)), names, fontsize=9, color=_INK)
    axis.invert_yaxis()
    axis.set_xlim(0, 100)
    axis.set_xlabel("share of an agent step (%)", fontsize=9, color=_INK)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(labelsize=8.5, color=_GREY, labelcolor=_INK, left=False)
    handles, labels = axis.get_legend_handles_labels()
    known = dict(zip(labels, handles, strict=True))
    shown = [part for part in COLOURS if part in known]
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


def _per_step(seconds: dict[str, float]) -> str:
    return f"{1e3 * sum(seconds.values()):.3g} ms"


def _draw_bar(axis: Any, row: int, seconds: dict[str, float]) -> None:
    whole, left = sum(seconds.values()) or 1.0, 0.0
    for part, colour in COLOURS.items():
        if part in seconds:
            share = 100 * seconds[part] / whole
            axis.barh(row, share, left=left, color=colour, label=part, height=0.6)
            if share >= 4:
                middle = left + share / 2
                axis.text(middle, row, f"{share:.0f}", ha="center", va="center", fontsize=8)
            left += share
