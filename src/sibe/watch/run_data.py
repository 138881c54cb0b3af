"""What the page of `sibe watch` shows of a run: read anew from its files, which it only reads.

A run may have just begun, be finished, be deleted while it is looked at, or come back.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from sibe.agents.sac.agent import SAC_METRICS
from sibe.analysis.comparison import setting_name
from sibe.analysis.report.page_data import curve_data, numbers
from sibe.analysis.runs import Run, read_run
from sibe.analysis.series import metric_series
from sibe.analysis.variants import Variant, assign_variants
from sibe.errors import UserError
from sibe.experiments.status import is_locked, recent_speed
from sibe.logs.console import duration
from sibe.logs.csv_log import TRAIN_COLUMNS
from sibe.logs.plot_style import GRAY
from sibe.storage.checkpoint import list_steps
from sibe.storage.contained_file import read_file
from sibe.storage.run_files import RunFiles

_TITLES = {
    "kl": "KL (nats)",
    "infonce": "InfoNCE (nats)",
    "infonce_accuracy": "InfoNCE accuracy",
    "mutual_information_bound": "Mutual information ≥ (nats)",
    "std_g": "Standard deviation of g",
    "std_q": "Standard deviation of q",
    "bonus": "Bonus per agent step",
    "q": "Q",
}
_LARGEST_VIDEO = 100_000_000  # bytes
_LOGARITHMIC = ("kl",)  # it falls from tens of thousands in the first updates


def run_data(path: Path) -> dict[str, Any]:
    """Return the run's state and, if it can be read, its numbers, curves and newest video."""
    files = RunFiles(path)
    try:
        run = read_run(path, str(path))
        return _describe(run, files)
    except (UserError, OSError) as error:  # files may vanish between one look and the next
        gone = not files.config_json.exists()
        return {"state": "gone" if gone else "damaged", "note": str(error)}


def newest_video(path: Path) -> bytes | None:
    """Return the newest video as bytes of an mp4 file; None if there is none."""
    try:
        return read_file(RunFiles(path).list_videos()[-1], within=path, limit=_LARGEST_VIDEO)
    except (IndexError, OSError, UserError):
        return None


def _describe(run: Run, files: RunFiles) -> dict[str, Any]:
    (variant,), _ = assign_variants([run])
    reached = int(run.training["frame"][-1]) if run.training else 0
    state = _state(run, files)
    return {
        "state": state,
        "note": f"sibe train --resume {run.path} continues it" if state == "stopped" else "",
        "title": f"{variant.label} on {run.task}",
        "setting": ", ".join(
            (setting_name(run.background), f"seed {run.seed}", f"preset {run.config['preset']}")
        ),
        "reached": reached,
        "planned": run.planned,
        "facts": _facts(run, state, reached),
        "charts": [_return_chart(run, variant), *_metric_charts(run, variant)],
        "video": _video_name(files),
        "has_videos": bool(run.config["schedule"].get("video", True)),
    }


def _state(run: Run, files: RunFiles) -> str:
    if max(list_steps(files.checkpoints), default=0) >= run.planned:
        return "finished"
    return "training" if is_locked(run.path) else "stopped"


def _facts(run: Run, state: str, reached: int) -> list[tuple[str, str]]:
    """Return what is worth a number of its own, as label and text."""
    evals, training = run.evals, run.training
    facts = []
    if evals:
        returns = evals["episode_reward"]
        spread = evals.get("episode_reward_std", np.full(len(returns), math.nan))[-1]
        last = f"{returns[-1]:.0f}" + ("" if math.isnan(spread) else f" ± {spread:.0f}")
        best = int(returns.argmax())
        facts += [("Last evaluation", last), ("Best evaluation", f"{returns[best]:.0f}")]
    if training:
        facts.append(("Last training episode", f"{training['episode_reward'][-1]:.0f}"))
        facts.append(("Training time", duration(float(training["total_time"][-1]))))
        speed = recent_speed(training)
        if state == "training" and speed > 0:
            facts.append(("Speed", f"{speed:.0f} env steps/s"))
            facts.append(("Time left", duration((run.planned - reached) / speed)))
    return facts


def _return_chart(run: Run, variant: Variant) -> dict[str, Any]:
    curves = []
    if run.evals:
        mean = run.evals["episode_reward"]
        std = run.evals.get("episode_reward_std", np.full(len(mean), math.nan))
        count = run.evals.get("episodes", np.full(len(mean), math.nan))
        curves.append(
            {
                "variant": _look("evaluation, mean [± std]", variant.color, 2),
                "x": [int(step) for step in run.evals["frame"]],
                "mean": numbers(mean),
                "low": numbers(mean - std),
                "high": numbers(mean + std),
                "n": numbers(count),
                "seeds": [run.seed],
                "values": [numbers(mean)],
            }
        )
    curves += _metric(run, "episode_reward", _look("training episodes", GRAY, 1.2))
    return {"title": "Return", "log": False, "curves": curves}


def _metric_charts(run: Run, variant: Variant) -> list[dict[str, Any]]:
    """Return a chart for each metric that has a value, the method's own first."""
    names = [name for name in run.training if name not in TRAIN_COLUMNS]
    names.sort(key=lambda name: name in SAC_METRICS)  # stable: else as in the file
    charts = []
    for name in names:
        title = _TITLES.get(name) or name.replace("_", " ").capitalize()
        if curves := _metric(run, name, _look(title, variant.color, 2)):
            charts.append({"title": title, "log": name in _LOGARITHMIC, "curves": curves})
    return charts


def _metric(run: Run, name: str, look: dict[str, Any]) -> list[dict[str, Any]]:
    series = metric_series([run], name)
    return [] if series is None else [{**curve_data(series), "n": None, "variant": look}]


def _look(label: str, color: str, width: float) -> dict[str, Any]:
    return {"label": label, "color": color, "dash": "", "width": width}


def _video_name(files: RunFiles) -> str | None:
    """Return the newest video's name with its time, so that another of that name is another."""
    try:
        video = files.list_videos()[-1]
        return f"{video.stem}-{video.stat().st_mtime_ns}"
    except (IndexError, OSError):
        return None
