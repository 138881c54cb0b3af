"""All methods by name: the one line that adds a method to the command line and to the tests.

A method is plugged into SAC, or is an agent of its own; the command line does not care which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.errors import UserError, nearest
from sibe.methods.base import Method
from sibe.methods.none import NoMethod, NoneConfig
from sibe.methods.sibe import SIBE, SIBEConfig


class Entry(NamedTuple):
    """How a method is configured and built."""

    config: type[Any]
    """frozen dataclass; every field has a default and a docstring"""
    build: Callable[..., Method]
    """called as ``build(features, action_dim, config, generator=generator)``"""


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
    "none": Entry(NoneConfig, NoMethod),
    "sibe": Entry(SIBEConfig, SIBE),
}

AGENTS: dict[str, AgentEntry] = {
    "plan2explore": AgentEntry(Plan2ExploreConfig, _build_plan2explore, _preset_plan2explore),
}


def find_method(name: str) -> Entry | AgentEntry:
    """Return the entry called ``name``."""
    known: dict[str, Entry | AgentEntry] = {**METHODS, **AGENTS}
    if name not in known:
        raise UserError(
            f"unknown method {name!r}{nearest(name, known)} (known: {', '.join(known)})"
        )
    return known[name]


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
