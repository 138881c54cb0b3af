"""All methods by name: the one line that adds a method to the command line and to the tests.

A method is plugged into SAC, or is an agent of its own; the command line does not care which.
Packages of others add theirs by an entry point of the group ``sibe.methods`` (see
docs/howto/add_method.md). A plug-in is imported only when its name is asked for, so a broken one
harms nobody else, and it cannot take the name of a built-in method.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

import torch

from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.errors import UserError, nearest
from sibe.methods.base import Method
from sibe.methods.db import DB, DBConfig
from sibe.methods.disagreement import Disagreement, DisagreementConfig
from sibe.methods.icm import ICM, ICMConfig
from sibe.methods.none import NoMethod, NoneConfig
from sibe.methods.proto import Proto, ProtoConfig
from sibe.methods.rnd import RND, RNDConfig
from sibe.methods.rpc import RPC, RPCConfig
from sibe.methods.sibe import SIBE, SIBEConfig

ENTRY_POINT_GROUP = "sibe.methods"


class Entry(NamedTuple):
    """How a method is configured and built."""

    config: type[Any]
    """frozen dataclass; every field has a default and a docstring"""
    build: Callable[..., Method]
    """called as ``build(features, action_dim, config, generator=generator)``"""
    bonus_field: str | None = "intrinsic"
    """field of the config that scales the bonus, 0 for none; None: the method never pays one"""


class AgentEntry(NamedTuple):
    """How an agent of its own is configured and built."""

    config: type[Any]
    """frozen dataclass; every field has a default and a docstring; ``sampling()`` as in SAC's"""
    build: Callable[..., Any]
    """called as ``build(run_config, action_dim, generator, device)``, returns an ``Agent``"""
    preset: Callable[[Any], Any]
    """takes the run's config with ``preset`` named in it and SAC's values, returns the agent's"""


def _build_plan2explore(*args: Any) -> Any:
    from sibe.agents.plan2explore.agent import Plan2Explore  # imports the config, and so this

    return Plan2Explore(*args)


def _preset_plan2explore(config: Any) -> Any:
    from sibe.agents.plan2explore.presets import with_preset

    return with_preset(config)


METHODS: dict[str, Entry] = {
    "none": Entry(NoneConfig, NoMethod, bonus_field=None),
    "sibe": Entry(SIBEConfig, SIBE),
    "rpc": Entry(RPCConfig, RPC, bonus_field="reward_cost"),
    "proto": Entry(ProtoConfig, Proto),
    "disagreement": Entry(DisagreementConfig, Disagreement),
    "icm": Entry(ICMConfig, ICM),
    "rnd": Entry(RNDConfig, RND),
    "db": Entry(DBConfig, DB),
}

AGENTS: dict[str, AgentEntry] = {
    "plan2explore": AgentEntry(Plan2ExploreConfig, _build_plan2explore, _preset_plan2explore),
}


def method_names() -> list[str]:
    """Return the names of all methods, built in or installed, without importing a plug-in."""
    built_in = [*METHODS, *AGENTS]
    return [*built_in, *(name for name in _plugins() if name not in built_in)]


def find_method(name: str) -> Entry | AgentEntry:
    """Return the entry called ``name``."""
    built_in: dict[str, Entry | AgentEntry] = {**METHODS, **AGENTS}
    points = _plugins().get(name, [])
    if name in built_in:
        if points:
            _warn_once(
                f"{_origins(points)} also offers a method {name!r}: the built-in one is used; "
                "rename or uninstall the other"
            )
        return built_in[name]
    if not points:
        known = method_names()
        raise UserError(
            f"unknown method {name!r}{nearest(name, known)} (known: {', '.join(known)})"
        )
    if len(points) > 1:
        raise UserError(f"method {name!r} is offered by {_origins(points)}: uninstall all but one")
    return _load(points[0])


@functools.cache
def _warn_once(line: str) -> None:
    logging.getLogger("sibe").warning("sibe: %s", line)


def _plugins() -> dict[str, list[EntryPoint]]:
    """Return the entry points of others by name; one name may be claimed more than once."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def _origins(points: list[EntryPoint]) -> str:
    return " and ".join(sorted(point.dist.name if point.dist else point.value for point in points))


def _load(point: EntryPoint) -> Entry:
    """Import a plug-in and check that it is an ``Entry``, or a function that returns one."""
    where = f"method {point.name!r} of {_origins([point])} ({point.value})"
    try:
        loaded = point.load()
        if not isinstance(loaded, Entry) and callable(loaded):
            loaded = loaded()
    except Exception as error:  # whatever a stranger's code may raise
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where} does not load ({why}): fix or uninstall it") from error
    fault = _fault(point.name, loaded)
    if fault:
        raise UserError(f"{where} {fault}: see docs/howto/add_method.md")
    entry: Entry = loaded
    return entry


def _fault(name: str, loaded: object) -> str | None:
    """Return what is wrong with a plug-in, if anything."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):  # it becomes a flag and a folder
        return "has a name with other characters than letters, digits, - and _"
    from sibe.config.schema import RunConfig  # imports this module

    if name in {field.name for field in dataclasses.fields(RunConfig)}:
        return "has the name of a part of the configuration: give it another"
    if not isinstance(loaded, Entry):
        return f"is a {type(loaded).__name__}, not a sibe.catalogue.registry.Entry"
    if not (isinstance(loaded.config, type) and dataclasses.is_dataclass(loaded.config)):
        return "has a config that is not a dataclass"
    if not loaded.config.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return "has a config that is not frozen (@dataclass(frozen=True))"
    try:
        loaded.config()
    except Exception as error:
        return f"has a config without valid defaults ({' '.join(str(error).split())})"
    fields = [field.name for field in dataclasses.fields(loaded.config)]
    if loaded.bonus_field is not None and loaded.bonus_field not in fields:
        return f"has no field {loaded.bonus_field!r} in its config, which should scale its bonus"
    return None


def build_method(
    name: str,
    config: Any,
    features: int,
    action_dim: int,
    *,
    generator: torch.Generator | None = None,
) -> Method:
    """Build the method called ``name``; ``config`` is its config, or None for the defaults."""
    entry = find_method(name)
    if isinstance(entry, AgentEntry):
        raise UserError(f"{name} is an agent of its own and cannot be plugged into SAC")
    config = entry.config() if config is None else config
    if not isinstance(config, entry.config):
        raise UserError(
            f"method {name!r} takes a {entry.config.__name__}, not a {type(config).__name__}"
        )
    return entry.build(features, action_dim, config, generator=generator)
