"""The probe's scores as one picture: robot and background, run beside run."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sibe.analysis.representation.probe import KNN, NEIGHBORS, R2, Score
from sibe.analysis.representation.probe_table import HEADINGS, summary
from sibe.logs.plot_style import add_legend, wrapped

_INK, _GRAY, _PALE = "#333333", "#9A9A9A", "#F3F3F3"
# Okabe and Ito, told apart by (nearly) everyone; gray is for who has learned nothing.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LOWEST = -0.25  # an R² below it says no more than that it failed


def draw_probe(scores: list[Score], *, title: str, untrained: str | None) -> Figure:
    """Return the figure; the run called ``untrained`` is gray."""
    rows = summary(scores)
    runs = [run for run in dict.fromkeys(run for run, _ in rows) if run != untrained]
    colors = {run: _COLORS[number % len(_COLORS)] for number, run in enumerate(runs)}
    columns = [key for key in HEADINGS if any(key in row for row in rows.values())]
    panels = [[key for key in columns if key[0] == measure] for measure in (R2, KNN)]
    height = 1.3 + 0.19 * max(len(panels[0]), 3) * (len(rows) + 1)
    figure = Figure(figsize=(10, height), dpi=110, layout="constrained", facecolor="white")
    figure.suptitle(title, fontsize=11, color=_INK, x=0.012, ha="left")
    axes = figure.subplots(1, 2, width_ratios=(3, 2))
    for axis, keys in zip(axes, panels, strict=True):
        _draw_panel(axis, keys, rows, colors)
    axes[0].set_xlabel("R² of linear decoding on held-out episodes", color=_INK)
    lowest = min((row[key].estimate.low for row in rows.values() for key in panels[0]), default=0)
    axes[0].set_xlim(max(_LOWEST, min(-0.02, lowest - 0.02)), 1.02)
    axes[0].axvline(0, color=_GRAY, lw=1, ls="--", zorder=1, label="knowing nothing")
    _finish_neighbors(axes[1], panels[1], rows)
    add_legend(figure, axes[0].get_legend_handles_labels()[0])
    return figure


def _finish_neighbors(axis: Any, keys: list[Any], rows: dict[Any, Any]) -> None:
    chance = next(iter(rows.values()))[keys[0]].chance
    axis.axvline(chance, color=_GRAY, lw=1, ls="--", zorder=1)
    axis.set_xlabel(f"{NEIGHBORS} nearest neighbors: share in common", color=_INK)
    axis.set_xlim(
        0, max(0.2, *(row[key].estimate.high * 1.1 for row in rows.values() for key in keys))
    )


def _draw_panel(axis: Any, keys: list[Any], rows: dict[Any, Any], colors: dict[str, str]) -> None:
    slots = len(rows) + 1
    for place, key in enumerate(keys):
        if place % 2 == 0:
            axis.axhspan(place - 0.5, place + 0.5, color=_PALE, lw=0, zorder=0)
        for number, ((run, latent), row) in enumerate(rows.items()):
            value, low, high = row[key].estimate
            y = place - 0.5 + (number + 1) / slots
            color = colors.get(run, _GRAY)
            axis.plot((low, high), (y, y), color=color, lw=1.6, zorder=2)
            axis.plot(
                np.maximum(value, _LOWEST),
                y,
                marker="o" if latent != "c" else "D",
                ms=5.5,
                ls="none",
                mec=color,
                mfc=color if latent != "c" else "white",
                label=wrapped(f"{run}: {latent}") if place == 0 else None,
                zorder=3,
            )
    axis.set_yticks(range(len(keys)), [HEADINGS[key] for key in keys])
    axis.set_ylim(len(keys) - 0.5, -0.5)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.spines["bottom"].set(color=_GRAY, linewidth=0.8)
    axis.tick_params(labelsize=9.5, color=_GRAY, labelcolor=_INK)
    axis.tick_params(axis="y", length=0)
