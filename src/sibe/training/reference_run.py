"""``sibe verify``: whether this machine computes what every other one does.

A small run of ``--deterministic portable`` whose results are part of the package. What it depends
on beside the code is recorded with them, so that a difference can be told from another version.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sibe.catalogue.presets import preset_config
from sibe.config.schema import RunConfig
from sibe.logs.csv_log import WALL_CLOCK_COLUMNS
from sibe.replay.episodes import episode_path, read_episode
from sibe.storage.contained_file import read_file
from sibe.storage.run_files import RunFiles
from sibe.training.meta import package_versions

REFERENCE = Path(__file__).with_name("data") / "reference_run.json"
ENV_STEPS = 2000


class Result(NamedTuple):
    """What a run gave, and with what."""

    sha256: dict[str, str]
    versions: dict[str, str | None]


def reference_config() -> RunConfig:
    """Return the config: SIBE with noise behind the robot, two episodes and two evaluations."""
    config = preset_config("debug", background="noise")
    schedule = replace(config.schedule, env_steps=ENV_STEPS, eval_episodes=1, video=False)
    return replace(config, deterministic="portable", schedule=schedule)


def read_result(path: Path) -> Result:
    """Return the result of the reference run in ``path``."""
    from sibe.envs.rendering import gl

    run = RunFiles(path)
    images = read_episode(episode_path(run.replay, 0)).frames
    assert not isinstance(images, dict)
    # Of random actions: physics, rendering and random numbers, but no network yet.
    first = images[: reference_config().schedule.initial_steps]
    hashes = {"the first images": hashlib.sha256(first.tobytes()).hexdigest()}
    for log in (run.train_csv, run.eval_csv, run.eval_episodes_csv):
        hashes[log.name] = hashlib.sha256(_without_wall_clock(log)).hexdigest()
    libc = " ".join(platform.libc_ver())
    return Result(hashes, {**package_versions(), "libc": libc, "OpenGL": gl.describe()})


def read_reference() -> Result:
    """Return the result that is part of the package."""
    stored: dict[str, Any] = json.loads(REFERENCE.read_text(encoding="utf-8"))
    return Result(**stored)


def differences(here: Result, there: Result) -> list[str]:
    """Return a line for each part of the result that differs; then, for each version that does."""
    parts = [name for name, sha256 in there.sha256.items() if here.sha256.get(name) != sha256]
    if not parts:
        return []
    return [
        *(f"{name}: not what the reference has" for name in parts),
        *other_versions(here, there),
    ]


def other_versions(here: Result, there: Result) -> list[str]:
    """Return a line for each version that is not the one of the reference."""
    return [
        f"{name} is {here.versions.get(name)} here and {version} in the reference"
        for name, version in there.versions.items()
        if here.versions.get(name) != version
    ]


def _without_wall_clock(path: Path) -> bytes:
    text = read_file(path, within=path.parent).decode()
    header, *rows = [line.split(",") for line in text.splitlines()]
    kept = [place for place, name in enumerate(header) if name not in WALL_CLOCK_COLUMNS]
    return "\n".join(",".join(row[place] for place in kept) for row in (header, *rows)).encode()
