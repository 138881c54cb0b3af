"""One setting over all tasks: interquartile means, performance profiles, who improves on whom."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from sibe.analysis.comparison import setting_name
from sibe.analysis.report.aggregate import THRESHOLDS, Aggregate, VariantAggregate
from sibe.logs.plot_style import GRAY, INK, line_style, longest_line, wrapped


def aggregate_figure(data: Aggregate) -> Figure:
    """Draw the three panels; the third only if there is more than one variant."""
    rivals = [one for one in data.variants if one.improvement is not None]
    panels = 3 if rivals else 2
    labels = [wrapped(one.variant.label) for one in data.variants]
    lines = sum(label.count("\n") + 2 for label in labels)
    height = max(3.0, 1.6 + 0.17 * lines)
    # Rows are named at the left of two of the panels; 14 characters fit as it is.
    width = 3.7 * panels + 2 * 0.07 * max(0, longest_line(labels) - 14)
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained", facecolor="white")
    axes = figure.subplots(1, panels)
    _draw_iqm(axes[0], data.variants)
    _draw_profiles(axes[1], data.variants)
    if rivals:
        _draw_improvement(axes[2], rivals, data.variants[0].variant.label)
    tasks = f"{len(data.tasks)} task{'s' if len(data.tasks) > 1 else ''}"
    setting = setting_name(data.background)
    figure.suptitle(f"{setting}: {tasks}, score = return / 1000", fontsize=11, color=INK)
    return figure


def _draw_iqm(axis: Any, variants: list[VariantAggregate]) -> None:
    for row, one in enumerate(variants):
        _draw_estimate(axis, row, one.iqm, one.variant.color)
    _label_rows(axis, [wrapped(f"{one.variant.label} ({_count(one.runs)})") for one in variants])
    _style(axis, "interquartile mean, 95 % interval")
    axis.set_xlim(0, 1)


def _count(runs: int) -> str:
    return "1\u00a0run" if runs == 1 else f"{runs}\u00a0runs"


def _draw_profiles(axis: Any, variants: list[VariantAggregate]) -> None:
    for one in reversed(variants):
        share, low, high = one.profile
        axis.fill_between(THRESHOLDS, low, high, color=one.variant.color, alpha=0.15, lw=0)
        axis.plot(
            THRESHOLDS, share, color=one.variant.color, lw=1.6, ls=line_style(one.variant.dash)
        )
    _style(axis, "score τ")
    axis.set(xlim=(0, 1), ylim=(0, 1.02))
    axis.set_ylabel("share of runs with a score above τ", fontsize=9, color=INK)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))


def _draw_improvement(axis: Any, rivals: list[VariantAggregate], first: str) -> None:
    axis.axvline(0.5, color=GRAY, lw=0.9, ls="--")
    for row, one in enumerate(rivals):
        assert one.improvement is not None
        _draw_estimate(axis, row, one.improvement, one.variant.color)
    _label_rows(axis, [wrapped(f"over {one.variant.label}") for one in rivals])
    _style(axis, wrapped(f"probability that {first} is better"))
    axis.set_xlim(-0.02, 1.02)


def _draw_estimate(axis: Any, row: int, estimate: Any, color: str) -> None:
    if math.isfinite(estimate.low):
        axis.barh(
            row,
            estimate.high - estimate.low,
            left=estimate.low,
            height=0.5,
            color=color,
            alpha=0.3,
        )
    axis.plot([estimate.value], [row], "o", color=color, ms=6)


def _label_rows(axis: Any, labels: list[str]) -> None:
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.5, -0.5)


def _style(axis: Any, label: str) -> None:
    axis.set_xlabel(label, fontsize=9, color=INK)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set(color=GRAY, linewidth=0.8)
    axis.tick_params(labelsize=8.5, color=GRAY, labelcolor=INK)
    axis.grid(axis="x", color="#E6E6E6", lw=0.8)
    axis.set_axisbelow(True)
