"""Figures over env steps: learning curves per setting, ablations, and bonus and KL over time.

A line is the mean over seeds, the shade its 95 % interval (Student's t). With fewer than three
seeds there is no shade: the seeds are drawn as thin lines. Where only a part of a variant's seeds
has arrived yet, the mean goes on as a faint line. Legends say n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sibe.analysis.comparison import Study, setting_name
from sibe.analysis.runs import Run
from sibe.analysis.series import Series, metric_series, return_series
from sibe.analysis.statistics import FEWEST
from sibe.analysis.variants import Variant
from sibe.logs.plot_style import (
    INK,
    X_LABEL,
    add_legend,
    line_style,
    set_logarithmic,
    style_axis,
    wrapped,
)

METRICS = {"kl": "KL (nats)", "bonus": "bonus per agent step"}
_RETURN = "episode return"
_COLUMNS = 3
_PANEL = (3.6, 2.7)

Place = tuple[str, str]
MakeSeries = Callable[[Sequence[Run]], Series | None]


class Labels(NamedTuple):
    """What is written on a figure."""

    title: str
    y: str
    panel: Callable[[Place], str]


def main_variants(study: Study) -> list[Variant]:
    """Return the variants that are compared with each other: all but the paper's ablations."""
    return [variant for variant in study.variants if variant.kind in ("method", "other")]


def curves_figure(study: Study, background: str) -> Figure | None:
    """Draw the returns of one setting, a panel per task; None if it has ablations only."""
    variants = main_variants(study)
    places = [(background, task) for task in study.tasks(background, variants)]
    if not places:
        return None
    labels = Labels(setting_name(background), _RETURN, lambda place: place[1])
    return _figure(study, variants, _rows(places), labels, return_series)


def ablation_figure(study: Study, kind: str) -> Figure | None:
    """Draw SIBE and its "component" or "chunk" variants: tasks down, settings across."""
    variants = [variant for variant in study.variants if variant.kind == kind]
    if not variants:
        return None
    whole = [
        variant
        for variant in study.variants
        if variant.kind == "method" and variant.method == "sibe"
    ]
    grid = [
        [(bg, task) for bg in study.backgrounds if task in study.tasks(bg, variants)]
        for task in study.tasks(None, variants)
    ]
    title = "Components of SIBE" if kind == "component" else "Chunk length L (SIBE: L = 2)"

    def name(place: Place) -> str:
        return f"{place[1]}, {setting_name(place[0]).lower()}"

    return _figure(study, [*whole, *variants], grid, Labels(title, _RETURN, name), return_series)


def metric_figure(study: Study, background: str, metric: str) -> Figure | None:
    """Draw one of ``METRICS`` in training, a panel per task; None if nobody logs it."""
    variants = main_variants(study)

    def make(runs: Sequence[Run]) -> Series | None:
        return metric_series(runs, metric)

    tasks = [
        task
        for task in study.tasks(background, variants)
        if any(make(study.select(variant, background, task)) for variant in variants)
    ]
    if not tasks:
        return None
    title = f"{setting_name(background)}: {METRICS[metric]}, in training"
    labels = Labels(title, METRICS[metric], lambda place: place[1])
    figure = _figure(study, variants, _rows([(background, task) for task in tasks]), labels, make)
    if metric == "kl":  # it falls from tens of thousands in the first updates
        for axis in figure.axes:
            set_logarithmic(axis)
    return figure


def _rows(places: list[Place]) -> list[list[Place]]:
    columns = min(_COLUMNS, len(places))
    return [places[i : i + columns] for i in range(0, len(places), columns)]


def _figure(
    study: Study,
    variants: Sequence[Variant],
    grid: Sequence[Sequence[Place]],
    labels: Labels,
    make: MakeSeries,
) -> Figure:
    rows, columns = len(grid), max(len(places) for places in grid)
    size = (max(_PANEL[0] * columns, 5.6), _PANEL[1] * rows + 1.1)
    figure = Figure(figsize=size, dpi=120, layout="constrained", facecolor="white")
    axes = figure.subplots(rows, columns, squeeze=False)
    seeds: dict[str, set[int]] = {}
    for row, places in enumerate(grid):
        for axis, place in zip(axes[row], places, strict=False):
            _draw_panel(axis, study, variants, place, make, seeds)
            style_axis(axis, labels.y if axis is axes[row][0] else "")
            axis.set_title(labels.panel(place), fontsize=9.5, color=INK)
            if row == rows - 1 or len(grid[row + 1]) <= list(axes[row]).index(axis):
                axis.set_xlabel(X_LABEL, fontsize=8.5, color=INK)
        for axis in axes[row][len(places) :]:
            axis.remove()
    figure.suptitle(labels.title, fontsize=11, color=INK)
    add_legend(
        figure,
        [
            Line2D(
                [],
                [],
                color=variant.color,
                ls=line_style(variant.dash),
                lw=1.7,
                label=_legend(variant, seeds[variant.key]),
            )
            for variant in variants
            if variant.key in seeds
        ],
    )
    return figure


def _draw_panel(
    axis: Any,
    study: Study,
    variants: Sequence[Variant],
    place: Place,
    make: MakeSeries,
    seeds: dict[str, set[int]],
) -> None:
    """Draw all curves of a panel, and note in ``seeds`` how many seeds each variant has."""
    last = lowest = 0.0
    for variant in reversed(variants):  # the first variant on top
        runs = study.select(variant, *place)
        series = make(runs) if runs else None
        if series is not None:
            draw_series(axis, series, variant)
            seeds.setdefault(variant.key, set()).add(len(series.seeds))
            last = max(last, series.env_step[-1])
            lowest = min(lowest, series.mean.min())
    axis.set_xlim(0, 1.02 * last or 1)
    if lowest >= 0:
        # From zero up; a band may reach below, where nothing can be.
        axis.set_ylim(0, axis.get_ylim()[1] if axis.get_ylim()[1] > 0 else 1)


def draw_series(axis: Any, series: Series, variant: Variant) -> None:
    """Draw one curve."""
    x, mean, (low, high) = series.env_step, series.mean, series.band
    axis.fill_between(x, low, high, color=variant.color, alpha=0.17, lw=0)
    if 1 < len(series.seeds) < FEWEST:
        axis.plot(x, series.values, color=variant.color, lw=0.7, alpha=0.6)
    whole = series.n == len(series.seeds)
    part = ~whole
    part[:-1] |= ~whole[1:]  # up to the last whole point, so that the two lines meet
    axis.plot(x, np.where(part, mean, np.nan), color=variant.color, lw=1.2, alpha=0.5)
    marker = "o" if len(x) == 1 else None  # a line of one point would not be seen
    style = {"color": variant.color, "lw": 1.7, "ls": line_style(variant.dash), "marker": marker}
    axis.plot(x, np.where(whole, mean, np.nan), **style)


def _legend(variant: Variant, seeds: set[int]) -> str:
    low, high = min(seeds), max(seeds)
    return wrapped(f"{variant.label} (n = {low if low == high else f'{low}–{high}'})")
