"""From the runs of a suite to runs that can be started: a config and a directory each.

The root keeps one directory per run. What is planned must fit what is already there: a run whose
config.json differs is refused before anything starts, except for what the machine decided then
(threads and device), which the run keeps for its whole life.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sibe.catalogue.presets import preset_config
from sibe.catalogue.registry import method_names
from sibe.catalogue.run_config import (
    check,
    comparable,
    refuse_fewer_env_steps,
    to_json,
    updates_per_run,
)
from sibe.config.schema import RunConfig
from sibe.envs.tasks import VIDEOS, check_names
from sibe.errors import UserError
from sibe.experiments.request import Overrides
from sibe.experiments.suites import MethodVariant, Suite, SuiteRun
from sibe.storage.run_directory import first_difference, refuse_foreign
from sibe.storage.run_files import RunFiles

_PLAIN = MethodVariant("none", "none")


class PlannedRun(NamedTuple):
    """A run, its config, and where it goes."""

    run: SuiteRun
    config: RunConfig
    path: Path


def missing_methods(runs: Iterable[SuiteRun]) -> list[str]:
    """Return the methods that the runs need and this installation lacks."""
    return [m for m in dict.fromkeys(run.variant.method for run in runs) if m not in method_names()]


def build_config(suite: Suite, run: SuiteRun, overrides: Overrides) -> RunConfig:
    """Return the whole config of a run; threads 0 and device "auto" are left to the engine."""
    config = preset_config(
        overrides.preset or suite.preset,
        task=run.task,
        method=run.variant.method,
        background=run.background,
    )
    changes = {**_sensors(suite, overrides), **suite.changes, **run.variant.changes}
    config = _change(config, changes)
    schedule = {
        name: value
        for name in ("env_steps", "eval_every", "eval_episodes")
        if (value := getattr(overrides, name)) is not None
    }
    clips = overrides.clips if run.background in VIDEOS else None
    config = replace(
        config,
        seed=run.seed,
        threads=suite.threads if overrides.threads is None else overrides.threads,
        device=overrides.device or config.device,
        env=replace(config.env, clips=clips),
        schedule=replace(config.schedule, **schedule),
    )
    check_names(run.task, run.background)
    check(config)
    return config


def _sensors(suite: Suite, overrides: Overrides) -> dict[str, Any]:
    asked = {"env.sensors": overrides.sensors, "env.cameras": overrides.cameras}
    given = {name: value for name, value in asked.items() if value is not None}
    if given and any(name in variant.changes for variant in suite.variants for name in asked):
        raise UserError(f"suite {suite.name} compares sensors: leave out --sensors and --cameras")
    return given


def _change(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    parts: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in changes.items():
        part, _, field = name.partition(".")
        parts[part][field] = value
    return replace(
        config, **{name: replace(getattr(config, name), **new) for name, new in parts.items()}
    )


def stand_in(run: SuiteRun) -> SuiteRun:
    """Return the same run of plain SAC, whose config exists whatever is installed."""
    return run._replace(variant=_PLAIN)


def count_updates(suite: Suite, run: SuiteRun, overrides: Overrides) -> int:
    """Return the gradient updates of a run, also of a method that is not installed."""
    return updates_per_run(any_config(suite, run, overrides))


def any_config(suite: Suite, run: SuiteRun, overrides: Overrides) -> RunConfig:
    """Return the config of a run; of a method that is not installed, that of plain SAC."""
    known = run.variant.method in method_names()
    return build_config(suite, run if known else stand_in(run), overrides)


def plan(
    suite: Suite, runs: Sequence[SuiteRun], overrides: Overrides, root: Path
) -> list[PlannedRun]:
    """Return the runs with their configs and directories below ``root``."""
    if missing := missing_methods(runs):
        known = [m for m in dict.fromkeys(v.method for v in suite.variants) if m not in missing]
        raise UserError(
            f"suite {suite.name} needs methods that this version of sibe lacks: "
            f"{', '.join(missing)}; run the rest with --methods {' '.join(known)}"
        )
    return [
        PlannedRun(run, build_config(suite, run, overrides), root / run.directory) for run in runs
    ]


def settle(planned: PlannedRun, *, threads: int, device: str, given: Overrides) -> PlannedRun:
    """Fill in what the machine decides, and refuse a directory that holds another run.

    A run that exists keeps its threads and its device unless ``given`` asks for others: its
    result must not depend on how many runs were beside it on the day it was resumed.
    """
    config = planned.config
    files = RunFiles(planned.path)
    exists = files.config_json.exists()
    if exists:
        refuse_foreign(planned.path)
    there: dict[str, Any] = files.read_config() if exists else {}
    if not config.threads:
        config = replace(config, threads=there.get("threads", threads))
    if given.device in (None, "auto"):
        config = replace(config, device=there.get("device", device))
    refuse_fewer_env_steps(planned.path, there, config.schedule.env_steps)
    here = as_stored(config)
    difference = first_difference(comparable(there), comparable(here)) if exists else None
    if difference is not None:
        name, old, new = difference
        raise UserError(
            f"{planned.path} holds another run: {name} is {old} there and {new} here; "
            "choose another --root, or ask for the same again"
        )
    return planned._replace(config=config)


def as_stored(config: RunConfig) -> dict[str, Any]:
    """Return the config as config.json holds it: lists, not tuples."""
    stored: dict[str, Any] = json.loads(json.dumps(to_json(config)))
    return stored
