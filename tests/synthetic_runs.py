"""Synthetic runs in the format of real ones, for the tests of what reads run directories.

The files are written by the package's own config and csv code, the numbers are made up: returns
rise along a sigmoid whose height and speed depend on method, task and background.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sibe.catalogue.presets import preset_config
from sibe.catalogue.registry import method_names
from sibe.catalogue.run_config import to_json
from sibe.config.schema import RunConfig
from sibe.logs.csv_log import EVAL_COLUMNS, EVAL_EPISODE_COLUMNS, TRAIN_COLUMNS, CsvLog
from sibe.logs.video import write_mp4

META = {
    "started": "2026-01-02T03:04:05+00:00",
    "command": "sibe train",
    "git": {"revision": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
    "versions": {"python": "3.11.7", "sibe": "0.1.0", "torch": "2.13.0"},
}
_SPEED = {"sibe": 1.0, "db": 0.8, "proto": 0.75, "plan2explore": 0.7, "rpc": 0.1, "none": 0.55}
_BACKGROUND = {"clean": 1.0, "noise": 0.9, "video": 0.7}
METRICS = ("kl", "infonce", "bonus")


def config_of(
    task: str, background: str, method: str, seed: int, *, preset: str = "paper", **changes: Any
) -> dict[str, Any]:
    """Return the JSON of a config; ``changes`` are "section.field" (with __ for the dot)."""
    known = method in method_names()
    config: RunConfig = preset_config(
        preset, task=task, method=method if known else "sibe", background=background
    )
    values = to_json(replace(config, seed=seed))
    values["method"] = method
    if not known:  # a method of a later version: the reader must not need its class
        values["method_config"] = {"hidden": 1024}
    for name, value in changes.items():
        section, field = name.split("__")
        values[section][field] = value
    return values


def write_run(
    folder: Path,
    config: dict[str, Any],
    *,
    env_steps: int = 500_000,
    every: int = 10_000,
    height: float | None = None,
    video: bool = False,
) -> Path:
    """Write a run that has been evaluated every ``every`` env steps up to ``env_steps``."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "meta.json").write_text(json.dumps(META))
    seed, method, env = config["seed"], config["method"], config["env"]
    rng = np.random.default_rng([seed, *map(ord, method + env["task"] + env["background"])])
    speed = _SPEED.get(method, 0.6) * _BACKGROUND[env["background"]]
    if config["method_config"].get("intrinsic") == 0:
        speed *= 0.8
    top = 950 * speed if height is None else height
    frames = np.arange(every, env_steps + 1, every)
    returns = top / (1 + np.exp(-(frames / 500_000 - 0.35 / max(speed, 0.3)) * 14))
    returns = np.maximum(returns * rng.normal(1, 0.05) + rng.normal(0, 12, len(frames)), 0)
    _write_evals(folder, frames, returns, env["action_repeat"], rng)
    _write_training(folder, frames, returns, env["action_repeat"], method, rng)
    if video:
        pictures = [np.full((64, 64, 3), (40 + 5 * i, 90, 160), np.uint8) for i in range(25)]
        write_mp4(folder / "video" / f"eval_{env_steps:09d}.mp4", pictures, 25)
    return folder


def _write_evals(folder: Path, frames: Any, returns: Any, repeat: int, rng: Any) -> None:
    with (
        CsvLog(folder / "eval.csv", EVAL_COLUMNS) as log,
        CsvLog(folder / "eval_episodes.csv", EVAL_EPISODE_COLUMNS) as each,
    ):
        for frame, mean in zip(frames, returns, strict=True):
            here = {"frame": int(frame), "step": int(frame) // repeat}
            scores = mean + rng.normal(0, 10, 10)
            scores += mean - scores.mean()
            for number, score in enumerate(scores):
                row = {"eval_episode": number, "seed": number, "episode_reward": score}
                each.append({**here, **row, "episode_length": 1000})
            log.append(
                {
                    **here,
                    "episode": int(frame) // 1000,
                    "episode_length": 1000,
                    "episode_reward": mean,
                    "total_time": frame / 100,
                    "episode_reward_std": scores.std(),
                    "episodes": 10,
                }
            )


def _write_training(
    folder: Path, frames: Any, returns: Any, repeat: int, method: str, rng: Any
) -> None:
    metrics: Sequence[str] = METRICS if method == "sibe" else ()
    steps = np.linspace(frames[0] / 10, frames[-1], min(100, 10 * len(frames)))
    with CsvLog(folder / "train.csv", (*TRAIN_COLUMNS, *metrics)) as log:
        for number, step in enumerate(steps, start=1):
            row: dict[str, Any] = {
                "frame": int(step),
                "step": int(step) // repeat,
                "episode": number,
                "episode_length": 1000,
                "episode_reward": float(np.interp(step, frames, returns)),
                "total_time": step / 100,
                "updates": int(step) // repeat,
            }
            if metrics and number > 2:  # no updates before, and so no metrics
                decay = float(np.exp(-step / 150_000))
                infonce = 1 + 5 * decay + rng.normal(0, 0.1)
                row |= {"kl": 12 + 20 * decay + rng.normal(0, 0.8)}
                row |= {"infonce": infonce, "bonus": 0.001 * infonce}
            log.append(row)


def write_grid(
    root: Path,
    *,
    tasks: Sequence[str],
    backgrounds: Sequence[str],
    methods: Sequence[str],
    seeds: int = 5,
    video: bool = False,
    **options: Any,
) -> Path:
    """Write <root>/<task>-<background>/<method>/seed<k> for a whole grid."""
    for task in tasks:
        for background in backgrounds:
            for method in methods:
                for seed in range(1, seeds + 1):
                    folder = root / f"{task}-{background}" / method / f"seed{seed}"
                    config = config_of(task, background, method, seed)
                    write_run(folder, config, video=video and seed == 1, **options)
    return root


def write_ablations(
    root: Path, *, task: str = "cartpole_swingup_sparse", seeds: int = 3, every: int = 10_000
) -> Path:
    """Write SIBE's two component ablations and three chunk lengths, clean and noise."""
    variants: dict[str, dict[str, Any]] = {
        "non-reward": {"method_config__intrinsic": 0.0},
        "non-compression": {"method_config__alpha": 0.0},
        "chunk1": {"sac__chunk": 1},
        "chunk1-double": {"sac__chunk": 1, "sac__method_batch": 2},
        "chunk3": {"sac__chunk": 3},
    }
    for name, changes in variants.items():
        for background in ("clean",) if name.startswith("chunk") else ("clean", "noise"):
            for seed in range(1, seeds + 1):
                config = config_of(task, background, "sibe", seed, **changes)
                height = 820 - 90 * list(variants).index(name)
                folder = root / f"{name}-{background}" / f"seed{seed}"
                write_run(folder, config, height=height, every=every)
    return root
