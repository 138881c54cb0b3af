"""How the package's figures look, and how they are saved: the same bytes for the same data."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

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


def set_logarithmic(axis: Any) -> None:
    """Make y logarithmic, with a handful of plain numbers; left as it is if a curve reaches 0."""
    drawn = np.concatenate([np.asarray(line.get_ydata(), float) for line in axis.lines])
    low, high = np.nanmin(drawn), np.nanmax(drawn)
    if low <= 0:
        return
    axis.set_yscale("log")
    axis.set_ylim(low / 1.1, high * 1.1)
    if high >= 10 * low:
        steps = (1.0,) if high >= 100 * low else (1.0, 2.0, 5.0)
        axis.yaxis.set_major_locator(LogLocator(subs=steps, numticks=5))
    else:  # there may be no such number in between
        axis.yaxis.set_major_locator(MaxNLocator(4))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter("{x:g}")


def wrapped(label: str, width: int = 48) -> str:
    """Return the label in lines that a figure has room for; what tells two apart may come last."""
    whole = label.replace(" = ", "\u00a0=\u00a0")  # a name and its value stay together
    return "\n".join(textwrap.wrap(whole, width)) or label


def longest_line(labels: Iterable[str]) -> int:
    """Return the number of characters in the longest line of the labels."""
    return max(len(line) for label in labels for line in label.split("\n"))


def add_legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Put a legend below the axes, as wide as the figure allows, and make room for it."""
    labels = [str(handle.get_label()) for handle in handles]
    fitting = max(1, int(figure.get_figwidth() // (1.0 + 0.07 * longest_line(labels))))
    lines = max(label.count("\n") + 1 for label in labels) * -(-len(labels) // fitting)
    figure.set_figheight(figure.get_figheight() + 0.2 * (lines - 1))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(fitting, len(labels)),
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        handlelength=3.2,
    )


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
