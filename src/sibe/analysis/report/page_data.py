"""What the page's charts are drawn from: every curve with its band and its seeds, as plain JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from sibe.analysis.comparison import Study, setting_name
from sibe.analysis.report.curve_figures import METRICS
from sibe.analysis.runs import Run
from sibe.analysis.series import Series, metric_series, return_series
from sibe.analysis.statistics import Floats


def page_data(study: Study) -> dict[str, Any]:
    """Return variants, settings, tasks, measures and curves; null stands for what is not there."""
    measures = _measures()
    curves = [
        {
            "measure": name,
            "background": background,
            "task": task,
            "variant": number,
            **curve_data(series),
        }
        for name, (_, make) in measures.items()
        for background in study.backgrounds
        for task in study.tasks(background)
        for number, variant in enumerate(study.variants)
        if (runs := study.select(variant, background, task)) and (series := make(runs)) is not None
    ]
    drawn = {curve["measure"] for curve in curves}
    some_method = any(variant.kind in ("method", "other") for variant in study.variants)
    return {
        "variants": [
            {
                "label": variant.label,
                "color": variant.color,
                "dash": variant.dash,
                # The paper's ablations would crowd the comparison of methods: one click away.
                "shown": variant.kind in ("method", "other") or not some_method,
            }
            for variant in study.variants
        ],
        "backgrounds": [{"name": b, "label": setting_name(b)} for b in study.backgrounds],
        "tasks": study.tasks(),
        "measures": [
            {"name": name, "label": label} for name, (label, _) in measures.items() if name in drawn
        ],
        "curves": curves,
    }


def _measures() -> dict[str, tuple[str, Callable[[Sequence[Run]], Series | None]]]:
    def metric(name: str) -> Callable[[Sequence[Run]], Series | None]:
        return lambda runs: metric_series(runs, name)

    return {
        "return": ("Return in evaluation", return_series),
        **{name: (f"{label}, in training", metric(name)) for name, label in METRICS.items()},
    }


def curve_data(series: Series) -> dict[str, Any]:
    """Return a curve as chart.js takes it, but for its variant."""
    low, high = series.band
    return {
        "x": [int(step) for step in series.env_step],
        "mean": numbers(series.mean),
        "low": numbers(low),
        "high": numbers(high),
        "n": [int(n) for n in series.n],
        "seeds": series.seeds,
        "values": [numbers(column) for column in series.values.T],
    }


def numbers(values: Floats) -> list[float | None]:
    """Return what JSON can say: nan and infinities are None."""
    # Five digits are finer than a pixel, and a third of the bytes of all of them.
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]
