"""The grid of observations as a picture, with two pairs marked and explained below it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sibe.envs.rendering.renderer import Frame

_GREEN, _RED, _INK, _GRAY = "#009E73", "#D55E00", "#222222", "#666666"
_DPI = 100
_GAP, _MARGIN, _HEAD, _FOOT = 3, 18, 58, 172  # pixels
_LEAST = 84  # pixels: smaller frames are enlarged by a whole factor
_THUMB = 128


class MarkedPair(NamedTuple):
    """A marked pair: which two, and what is said about it."""

    pair: tuple[int, int]
    title: str
    text: str


def draw_grid(
    frames: Frame,
    cells: npt.NDArray[np.int64],
    *,
    title: str,
    subtitle: str,
    marks: list[MarkedPair],
    note: str,
) -> Figure:
    """Return a figure of ``frames`` [N, H, W, 3], each in its cell (column, row) [N, 2].

    Args:
        frames, cells: what is shown where.
        title, subtitle: above the grid.
        marks: at most two pairs: the first in solid green, the second in dashed red.
        note: below, beside the pairs.
    """
    blocks = _enlarged(frames)
    side = blocks.shape[1] + _GAP
    columns, rows = cells.max(axis=0) + 1
    canvas = np.full((rows * side + _GAP, columns * side + _GAP, 3), 255, np.uint8)
    for block, (column, row) in zip(blocks, cells, strict=True):
        y, x = row * side + _GAP, column * side + _GAP
        canvas[y : y + len(block), x : x + len(block)] = block
    height, width = canvas.shape[0] + _HEAD + _FOOT, canvas.shape[1] + 2 * _MARGIN
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")
    axis = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0, width), ylim=(height, 0))
    axis.axis("off")
    right, bottom = _MARGIN + canvas.shape[1], _HEAD + canvas.shape[0]
    axis.imshow(canvas, extent=(_MARGIN, right, bottom, _HEAD), interpolation="nearest", zorder=0)
    axis.set(xlim=(0, width), ylim=(height, 0))
    axis.text(_MARGIN + _GAP, 20, title, fontsize=15, color=_INK, va="center")
    axis.text(_MARGIN + _GAP, 44, subtitle, fontsize=10.5, color=_GRAY, va="center")
    for mark, color, style in zip(marks, (_GREEN, _RED), ("-", (0, (3, 1.2))), strict=False):
        _draw_mark(axis, cells[list(mark.pair)], side, color, style)
    _draw_legend(axis, frames, marks, note, bottom + 14, width)
    return figure


def _enlarged(frames: Frame) -> Frame:
    factor = max(1, round(_LEAST / frames.shape[1]))
    return frames.repeat(factor, axis=1).repeat(factor, axis=2)


def _draw_mark(axis: Any, pair: npt.NDArray[np.int64], side: int, color: str, style: Any) -> None:
    """Frame the two cells and join them; white around the color, to be seen on any picture."""
    corner = pair * side + [_MARGIN, _HEAD] + _GAP / 2
    center = corner + side / 2
    step = center[1] - center[0]
    # From edge to edge, not across the two pictures.
    inset = step * (side / 2 / np.abs(step).max())
    line = np.stack((center[0] + inset, center[1] - inset)).T
    if np.abs(pair[1] - pair[0]).max() > 1:
        axis.plot(*line, color="white", lw=5, zorder=1, alpha=0.85)
        axis.plot(*line, color=color, lw=2.4, ls=style, zorder=2)
    for x, y in corner:
        for frame in _frames(x, y, side, color, style):
            axis.add_patch(frame)


def _frames(x: float, y: float, side: float, color: str, style: Any) -> tuple[Rectangle, ...]:
    return (
        Rectangle((x, y), side, side, fill=False, ec="white", lw=7, zorder=3),
        Rectangle((x, y), side, side, fill=False, ec=color, lw=4, ls=style, zorder=4),
    )


def _draw_legend(
    axis: Any, frames: Frame, marks: list[MarkedPair], note: str, top: float, width: float
) -> None:
    share = (width - 2 * _MARGIN) / 3
    for number, mark in enumerate(marks):
        left = _MARGIN + _GAP + number * share
        color, style = ((_GREEN, "-"), (_RED, (0, (3, 1.2))))[number]
        for place, index in enumerate(mark.pair):
            x = left + place * (_THUMB + 8)
            extent = (x, x + _THUMB, top + _THUMB, top)
            axis.imshow(frames[index], extent=extent, interpolation="nearest")
            for frame in _frames(x, top, _THUMB, color, style):
                axis.add_patch(frame)
        x = left + 2 * _THUMB + 22
        axis.text(x, top + 6, mark.title, fontsize=11.5, color=color, weight="bold", va="top")
        axis.text(x, top + 46, mark.text, fontsize=10.5, color=_INK, va="top", linespacing=1.35)
    left = _MARGIN + _GAP + len(marks) * share
    axis.text(left, top + 6, note, fontsize=10.5, color=_GRAY, va="top", linespacing=1.4)
    height = axis.get_ylim()[0]
    axis.set(xlim=(0, width), ylim=(height, 0))
