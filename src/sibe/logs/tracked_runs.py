"""Runs on trackio and on Weights & Biases: opened anew, or continued under their stored id."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
from typing import Any, Literal

from sibe.errors import UserError
from sibe.logs.tracker import TrackedRun, Tracker
from sibe.storage.atomic import write_atomic
from sibe.storage.json_file import read_json
from sibe.storage.run_files import RunFiles

Tracking = Literal["none", "trackio", "wandb"]
"""Where a run is tracked."""

_PROJECT = "sibe"
_INSTALL = {"trackio": "'sibe[track]'", "wandb": "wandb"}


class TrackioRun:
    """Local by default: written to trackio's own folder, seen with `trackio show`."""

    def __init__(self, run_id: str, name: str, config: dict[str, Any]) -> None:
        import trackio

        # Its runs are known by their names.
        self._run = trackio.init(
            project=_PROJECT,
            name=f"{name}-{run_id}",
            config=config,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, values: dict[str, float], env_step: int) -> None:
        """Add values at an env step."""
        self._run.log(values, step=env_step)

    def finish(self) -> None:
        """Write what is queued."""
        self._run.finish()


class WandbRun:
    """Offline, in the run's folder, unless WANDB_API_KEY or WANDB_MODE says otherwise."""

    def __init__(self, run_id: str, name: str, config: dict[str, Any], folder: str) -> None:
        import wandb

        env = os.environ
        # At exit wandb would wait for its uploads for as long as they take.
        env.setdefault("WANDB_FINISH_TIMEOUT", "20")
        self._run = wandb.init(
            project=env.get("WANDB_PROJECT", _PROJECT),
            id=run_id,
            name=name,
            dir=folder,
            config=config,
            resume="allow",
            mode=None if env.get("WANDB_MODE") or env.get("WANDB_API_KEY") else "offline",
            settings={"console": "off", "silent": True},
        )
        for metrics in ("train/*", "eval/*"):
            self._run.define_metric(metrics, step_metric="env_step")

    def log(self, values: dict[str, float], env_step: int) -> None:
        """Add values at an env step."""
        # Not wandb's own step: it may not go back, as after a kill or a slow evaluation.
        self._run.log({**values, "env_step": env_step})

    def finish(self) -> None:
        """Send what is queued."""
        self._run.finish()


def check_installed(tracker: Tracking) -> None:
    """Refuse a tracker whose package is missing."""
    if tracker == "none":
        return
    spec = importlib.util.find_spec(tracker)
    if spec is None or spec.origin is None:  # no file: a folder ./wandb is not the package
        raise UserError(
            f"--track {tracker} needs a package that is not installed: "
            f"pip install {_INSTALL[tracker]}"
        )


def make_trackers(
    tracker: Tracking, run: RunFiles, name: str, config: dict[str, Any]
) -> list[Tracker]:
    """Return the sink for ``run``, shown as ``name``, if any; its package loads at first use."""

    def start() -> TrackedRun:
        run_id = _run_id(run, tracker)
        if tracker == "trackio":
            return TrackioRun(run_id, name, config)
        return WandbRun(run_id, name, config, str(run.path))

    return [] if tracker == "none" else [Tracker(tracker, start)]


def _run_id(run: RunFiles, tracker: str) -> str:
    """Return the id under which ``tracker`` knows the run; a new one is stored first."""
    ids: dict[str, str] = {}
    if run.tracker_json.exists():
        ids = read_json(run.tracker_json, within=run.path)
    if tracker not in ids:
        ids[tracker] = secrets.token_hex(4)
        write_atomic(run.tracker_json, (json.dumps(ids, indent=1) + "\n").encode())
    return ids[tracker]
