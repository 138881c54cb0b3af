"""A run's config as a whole: to and from JSON, checked, and what follows from it."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from sibe.catalogue.registry import find_agent, method_names
from sibe.config.schema import EncoderConfig, EnvConfig, RunConfig, SACConfig, ScheduleConfig
from sibe.config.values import check_values
from sibe.errors import UserError, nearest
from sibe.replay.sampling import Sampling
from sibe.storage.json_file import digest
from sibe.storage.run_files import RunFiles

_RENAMED = {"db": ("normalise", "normalize"), "proto": ("neighbours", "neighbors")}
"""Fields by the spelling of 0.1, and what they are called now."""


def sampling(config: RunConfig) -> Sampling:
    """Return what an update draws from the replay and how often there is one."""
    return find_agent(config.method).sampling(config)


def check(config: RunConfig) -> None:
    """Refuse values that do not go together; each by itself was checked when it was set."""
    find_agent(config.method).check(config)
    length = sampling(config).length
    if config.schedule.initial_steps < length:
        raise UserError(f"--initial-steps must be at least {length}: one sampled sequence")
    least = length + config.env.stack + 1
    if config.schedule.replay_capacity < least:
        raise UserError(f"--replay-capacity must be at least {least}")


def updates_per_run(config: RunConfig) -> int:
    """Return how many updates a run makes: from the last random agent step on, every so many."""
    agent_steps = -(-config.schedule.env_steps // config.env.action_repeat)
    since = agent_steps - config.schedule.initial_steps
    drawn = sampling(config)
    return (since // drawn.every + 1) * drawn.updates if since >= 0 else 0


def with_defaults(config: RunConfig) -> RunConfig:
    """Return the config with the method's own defaults where it has none."""
    if config.method_config is not None:
        return config
    return dataclasses.replace(config, method_config=find_agent(config.method).config())


def to_json(config: RunConfig) -> dict[str, Any]:
    """Return the config as plain JSON values."""
    values = dataclasses.asdict(with_defaults(config))
    values["encoder"]["strides"] = list(config.encoder.strides)
    for name in ("sensors", "cameras"):
        values["env"][name] = list(values["env"][name])
    return values


def read_run_config(path: Path) -> RunConfig:
    """Return the config of a run directory or an export.

    Raises:
        UserError: if there is none, or its method comes from a plug-in that is missing here.
    """
    files = RunFiles(path)
    values = files.read_config()
    method = values.get("method")
    if isinstance(method, str) and method not in method_names():
        plugin = files.read_meta().get("plugin")
        if not isinstance(plugin, dict) or "package" not in plugin:
            raise UserError(
                f"method {method!r} of {path} comes from a plug-in that is not installed here "
                f"(there are {', '.join(method_names())})"
            )
        raise UserError(
            f"method {method!r} of {path} comes from the package {plugin['package']} (entry point "
            f"{plugin.get('entry_point')}), which is not installed here: pip install it"
        )
    return from_json(values)


def from_json(values: dict[str, Any]) -> RunConfig:
    """Return the config that ``to_json`` wrote; fields that this version lacks are an error."""
    try:
        values = upgraded(values)
        method = values["method"]
        parts = {
            "env": (EnvConfig, ""),
            "encoder": (EncoderConfig, "encoder"),
            "sac": (SACConfig, "sac"),
            "schedule": (ScheduleConfig, ""),
            "method_config": (find_agent(method).config, method),
        }
        built = {name: _build(cls, values[name], flags) for name, (cls, flags) in parts.items()}
        config: RunConfig = _build(RunConfig, {**values, **built})
        return config
    except UserError as error:
        raise UserError(
            f"the run's config.json does not fit this version of sibe: {error}"
        ) from error


def upgraded(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of an older version's config as this version would have written them."""
    for name in ("env", "encoder", "sac", "schedule", "method_config"):
        if not isinstance(values.get(name), dict):
            raise UserError(f"{name} must be an object, not {values.get(name)!r}")
    for name in ("method", "preset"):
        if not isinstance(values.get(name), str):
            raise UserError(f"{name} must be text, not {values.get(name)!r}")
    env, own = values["env"], values["method_config"]
    if env.get("background") == "video" and "loop_frames" not in env:  # there was no loop then
        values = {**values, "env": {**env, "background": "video_random"}}
    if values["method"] in _RENAMED:
        before, now = _RENAMED[values["method"]]
        own = {now if name == before else name: value for name, value in own.items()}
        values = {**values, "method_config": own}
    if values["method"] == "sibe" and "first_std" not in own:
        values = {**values, "method_config": {**own, "first_std": 1.0, "start": "random"}}
    return values


def comparable(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a config in which two configs of one run must agree.

    Fields that came after it was written have their defaults; what may change from one resume to
    the next is left out: where the run is tracked, and how many env steps it takes, which may grow
    (``refuse_fewer_env_steps``).
    """
    with contextlib.suppress(UserError):  # not of this version: the comparison says what differs
        values = to_json(from_json(values))
    return _kept(values)


def kept_hash(values: dict[str, Any]) -> str:
    """Return the hash of what a run's config.json keeps for as long as there is the run.

    It is that of the values as they are in the file, which no later version changes.
    """
    return digest(_kept(values))


def _kept(values: dict[str, Any]) -> dict[str, Any]:
    schedule = values.get("schedule")
    if not isinstance(schedule, dict):
        return values
    kept = {k: v for k, v in schedule.items() if k not in ("track", "env_steps")}
    return {**values, "schedule": kept}


def refuse_fewer_env_steps(path: Path, there: dict[str, Any], env_steps: int) -> None:
    """Refuse to end a run before what it was asked for; ``there`` is its config.json."""
    schedule = there.get("schedule")
    begun_for = schedule.get("env_steps") if isinstance(schedule, dict) else None
    if isinstance(begun_for, int) and begun_for > env_steps:
        raise UserError(
            f"{path} is a run of {begun_for} env steps, which can be extended but not cut to "
            f"{env_steps}: continue it with sibe train --resume {path}"
        )


def _build(cls: Any, values: dict[str, Any], flags: str = "") -> Any:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(values.keys() - fields.keys())
    if unknown:
        raise UserError(f"unknown field {unknown[0]!r}{nearest(unknown[0], fields)}")
    built = cls(**{n: tuple(v) if isinstance(v, list) else v for n, v in values.items()})
    check_values(built, flags)  # a plug-in's config may be a plain dataclass
    return built
