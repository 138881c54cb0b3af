"""How the package's figures look, and how they are saved: the same bytes for the same data."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

X_LABEL = "environment steps (action repeat included)"
GRAY, INK = "#9A9A9A", "#333333"


def style_axis(axis: Any, label: str) -> None:
    """Set the y label and the house style; x is env steps."""
    axis.set_ylabel(label, fontsize=9, color=INK)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set(color=GRAY, linewidth=0.8)
    axis.tick_params(labelsize=8.5, color=GRAY, labelcolor=INK)
    axis.grid(axis="y", color="#E6E6E6", lw=0.8)
    axis.set_axisbelow(True)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.xaxis.set_major_locator(MaxNLocator(6))
    axis.yaxis.set_major_locator(MaxNLocator(5))


def shortened(label: str, most: int = 48) -> str:
    """Return the label of an arm as a figure has room for; the page has all of it."""
    return label if len(label) <= most else label[: most - 1] + "…"


def line_style(dash: str) -> Any:
    """Return an SVG dash pattern ("" for solid) as matplotlib wants it."""
    return (0, tuple(float(n) for n in dash.split())) if dash else "-"


def picture(figure: Figure, kind: str) -> bytes:
    """Return the figure as a "png" or "svg" file."""
    out = io.BytesIO()
    # No version and no date in the file, and ids from a fixed salt: equal runs, equal pictures.
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    with matplotlib.rc_context({"svg.hashsalt": "sibe"}):
        figure.savefig(out, format=kind, metadata=metadata)
    return out.getvalue()
