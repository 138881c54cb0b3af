"""Figures over env steps: learning curves per setting, ablations, and bonus and KL over time.

A line is the mean over seeds, the shade its 95 % interval (Student's t). With fewer than three
seeds there is no shade: the seeds are drawn as thin lines. Where only a part of an arm's seeds has
arrived yet, the mean goes on as a faint line. Legends say n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sibe.analysis.arms import Arm
from sibe.analysis.plot_style import INK, X_LABEL, style_axis
from sibe.analysis.runs import Run
from sibe.analysis.series import Series, metric_series, return_series
from sibe.analysis.statistics import FEWEST
from sibe.analysis.study import SETTINGS, Study

METRICS = {"kl": "KL (nats)", "bonus": "bonus per agent step"}
_COLUMNS = 3
_PANEL = (3.6, 2.7)

Place = tuple[str, str]
MakeSeries = Callable[[Sequence[Run]], Series | None]


def main_arms(study: Study) -> list[Arm]:
    """Return the arms that are compared with each other: all but the paper's ablations."""
    return [arm for arm in study.arms if arm.kind in ("method", "other")]


def curves_figure(study: Study, background: str) -> Figure | None:
    """Draw the returns of one setting, a panel per task; None if it has ablations only."""
    arms = main_arms(study)
    places = [(background, task) for task in study.tasks(background, arms)]
    if not places:
        return None
    columns = min(_COLUMNS, len(places))
    grid = [places[i : i + columns] for i in range(0, len(places), columns)]
    title = SETTINGS.get(background, background)
    return _figure(study, arms, grid, title, lambda place: place[1])


def ablation_figure(study: Study, kind: str) -> Figure | None:
    """Draw SIBE and its "component" or "chunk" variants: tasks down, settings across."""
    variants = [arm for arm in study.arms if arm.kind == kind]
    if not variants:
        return None
    whole = [arm for arm in study.arms if arm.kind == "method" and arm.method == "sibe"]
    grid = [
        [(bg, task) for bg in study.backgrounds if task in study.tasks(bg, variants)]
        for task in study.tasks(None, variants)
    ]
    title = "Components of SIBE" if kind == "component" else "Chunk length L (SIBE: L = 2)"

    def name(place: Place) -> str:
        return f"{place[1]}, {SETTINGS.get(place[0], place[0]).lower()}"

    return _figure(study, [*whole, *variants], grid, title, name)


def metrics_figure(study: Study, background: str) -> Figure | None:
    """Draw KL and bonus in training, tasks across; None if no method of the setting logs them."""
    arms, drawn = main_arms(study), []
    for metric, label in METRICS.items():
        make = _metric(metric)
        tasks = [
            task
            for task in study.tasks(background, arms)
            if any(make(study.select(arm, background, task)) for arm in arms)
        ]
        if tasks:
            drawn.append((make, label, tasks))
    if not drawn:
        return None
    columns = max(len(tasks) for _, _, tasks in drawn)
    figure, subfigures = _canvas(len(drawn), columns)
    shown: dict[str, tuple[Arm, set[int]]] = {}
    for row, (make, label, tasks) in enumerate(drawn):
        for column, task in enumerate(tasks):
            axis = subfigures[row][column]
            _draw_panel(axis, study, arms, (background, task), make, shown)
            style_axis(axis, label if column == 0 else "")
            axis.set_title(task, fontsize=9.5, color=INK)
        for axis in subfigures[row][len(tasks) :]:
            axis.remove()
    _finish(figure, f"{SETTINGS.get(background, background)}: what the methods measure", shown)
    return figure


def _metric(metric: str) -> MakeSeries:
    return lambda runs: metric_series(runs, metric)


def _figure(
    study: Study,
    arms: Sequence[Arm],
    grid: Sequence[Sequence[Place]],
    title: str,
    name: Callable[[Place], str],
) -> Figure:
    figure, axes = _canvas(len(grid), max(len(row) for row in grid))
    shown: dict[str, tuple[Arm, set[int]]] = {}
    for row, places in enumerate(grid):
        for column, place in enumerate(places):
            axis = axes[row][column]
            _draw_panel(axis, study, arms, place, return_series, shown)
            style_axis(axis, "episode return" if column == 0 else "")
            axis.set_title(name(place), fontsize=9.5, color=INK)
            if axis.dataLim.ymin >= 0:
                axis.set_ylim(0, max(1.0, axis.get_ylim()[1]))
        for axis in axes[row][len(places) :]:
            axis.remove()
    _finish(figure, title, shown)
    return figure


def _canvas(rows: int, columns: int) -> tuple[Figure, Any]:
    width = max(_PANEL[0] * columns, 5.6)
    figure = Figure(
        figsize=(width, _PANEL[1] * rows + 1.1), dpi=120, layout="constrained", facecolor="white"
    )
    return figure, figure.subplots(rows, columns, squeeze=False)


def _draw_panel(
    axis: Any,
    study: Study,
    arms: Sequence[Arm],
    place: Place,
    make: MakeSeries,
    shown: dict[str, tuple[Arm, set[int]]],
) -> None:
    last = 0.0
    for arm in reversed(arms):  # the first arm on top
        runs = study.select(arm, *place)
        series = make(runs) if runs else None
        if series is not None:
            draw_series(axis, series, arm)
            shown.setdefault(arm.key, (arm, set()))[1].add(len(series.seeds))
            last = max(last, series.env_step[-1])
    axis.set_xlim(0, 1.02 * last or 1)


def draw_series(axis: Any, series: Series, arm: Arm) -> None:
    """Draw one curve."""
    x, mean, (low, high) = series.env_step, series.mean, series.band
    axis.fill_between(x, low, high, color=arm.colour, alpha=0.17, lw=0)
    if 1 < len(series.seeds) < FEWEST:
        axis.plot(x, series.values, color=arm.colour, lw=0.7, alpha=0.6)
    whole = series.n == len(series.seeds)
    marker = "o" if len(x) == 1 else ""
    axis.plot(x, mean, color=arm.colour, lw=1.2, alpha=0.4)
    axis.plot(
        x, np.where(whole, mean, np.nan), marker, ls=_line_style(arm), color=arm.colour, lw=1.7
    )


def _line_style(arm: Arm) -> Any:
    return (0, tuple(float(n) for n in arm.dash.split())) if arm.dash else "-"


def _finish(figure: Figure, title: str, shown: dict[str, tuple[Arm, set[int]]]) -> None:
    figure.suptitle(title, fontsize=11, color=INK)
    figure.supxlabel(X_LABEL, fontsize=9, color=INK)
    handles = [
        Line2D([], [], color=arm.colour, ls=_line_style(arm), lw=1.7, label=_legend(arm, seeds))
        for arm, seeds in reversed(shown.values())
    ]
    columns = max(1, int(figure.get_figwidth() // 2.6))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(columns, len(handles)),
        frameon=False,
        fontsize=8.5,
        labelcolor=INK,
        handlelength=3.2,
    )


def _legend(arm: Arm, seeds: set[int]) -> str:
    low, high = min(seeds), max(seeds)
    return f"{arm.label} (n = {low})" if low == high else f"{arm.label} (n = {low}–{high})"
