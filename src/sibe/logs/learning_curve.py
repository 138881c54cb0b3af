"""One run as a picture: its return, and what its method measured, over environment steps.

Left: the mean return of each evaluation with its standard deviation over episodes, the training
episodes faint behind it. Right, if train.csv has them: the two terms of the bottleneck's loss,
each on a scale of its own, logarithmic where it spans decades. Colors are those of Okabe and Ito,
told apart by (nearly) everyone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from sibe.errors import UserError
from sibe.logs.csv_log import read_results
from sibe.logs.picture_file import check_png, write_png
from sibe.logs.plot_style import GRAY, INK, X_LABEL, set_logarithmic, style_axis
from sibe.storage.run_files import RunFiles

_BLUE = "#0072B2"
_METRICS = {"kl": ("KL (nats)", "#D55E00"), "infonce": ("InfoNCE (nats)", "#009E73")}

_DECADES = 100  # highest over lowest value, above which an axis is logarithmic

Table = dict[str, NDArray[np.float64]]


def write_learning_curve(run: Path, out: Path) -> Path:
    """Draw the run in folder ``run`` and return ``out``, a PNG file of 1000 × 380 pixels."""
    check_png(out)
    files = RunFiles(run)
    title = _title(files)
    evals, training = read_results(files.eval_csv), read_results(files.train_csv)
    if not evals and not training:
        raise UserError(f"{run} has no episode to plot yet: let it train a little longer")
    metrics = [name for name in _METRICS if np.isfinite(training.get(name, np.nan)).any()]

    figure = _draw(title, evals, training, metrics)
    write_png(figure, out)
    return out


def _draw(title: str, evals: Table, training: Table, metrics: list[str]) -> Figure:
    layout = ConstrainedLayoutEngine(w_pad=0.08, wspace=0.03)
    figure = Figure(figsize=(10, 3.8), dpi=100, layout=layout, facecolor="white")
    figure.suptitle(title, fontsize=11, color=INK, x=0.012, ha="left")
    figure.supxlabel(X_LABEL, fontsize=9, color=INK)
    grid = figure.add_gridspec(max(1, len(metrics)), 5)
    left = figure.add_subplot(grid[:, : 3 if metrics else 5])
    _draw_return(left, evals, training)
    # Beside the title, where no curve can run through it.
    figure.legend(
        loc="upper right", ncols=2, frameon=False, fontsize=8.5, labelcolor=INK, borderaxespad=0.2
    )
    right = [figure.add_subplot(grid[row, 3:], sharex=left) for row in range(len(metrics))]
    for axis, name in zip(right, metrics, strict=True):
        _draw_metric(axis, name, training)
    for axis in right[:-1]:
        axis.tick_params(labelbottom=False)
    figure.align_ylabels(right)
    last = max(table["frame"].max() for table in (evals, training) if table)
    left.set_xlim(0, 1.02 * last or 1)
    return figure


def _title(run: RunFiles) -> str:
    try:
        config = run.read_config()
        env = config["env"]
        parts = (env["task"], env["background"], config["method"], f"seed {config['seed']}")
        return "  ·  ".join(map(str, parts))
    except (UserError, KeyError, TypeError) as error:
        raise UserError(
            f"{run.path} is not the folder of a run: its config.json does not read"
        ) from error


def _draw_return(axis: Any, evals: Table, training: Table) -> None:
    if training:
        x, y = training["frame"], training["episode_reward"]
        axis.plot(x, y, "o", ms=3, mew=0, color=GRAY, alpha=0.7, label="training episode")
    if evals:
        x, y = evals["frame"], evals["episode_reward"]
        std = np.nan_to_num(evals.get("episode_reward_std", np.zeros_like(y)))
        axis.fill_between(x, y - std, y + std, color=_BLUE, alpha=0.18, lw=0)
        label = "evaluation, mean ± std over episodes"
        axis.plot(x, y, "o-", lw=1.6, ms=3.5, color=_BLUE, label=label, clip_on=False)
    style_axis(axis, "episode return")
    returns = [table["episode_reward"] for table in (evals, training) if table]
    if np.concatenate(returns).min() >= 0:
        axis.set_ylim(0, max(1, axis.get_ylim()[1]))


def _draw_metric(axis: Any, name: str, training: Table) -> None:
    label, color = _METRICS[name]
    known = np.isfinite(training[name])
    values = training[name][known]
    axis.plot(training["frame"][known], values, lw=1.2, color=color)
    style_axis(axis, label)
    if name == "kl" or values.max() > _DECADES * values.min():
        set_logarithmic(axis)
    axis.yaxis.label.set_color(color)
