"""All methods by name: the one line that adds a method to the command line and to the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from sibe.errors import UserError, nearest
from sibe.methods.base import Method
from sibe.methods.db import DB, DBConfig
from sibe.methods.none import NoMethod, NoneConfig
from sibe.methods.sibe import SIBE, SIBEConfig


class Entry(NamedTuple):
    """How a method is configured and built."""

    config: type[Any]
    """frozen dataclass; every field has a default and a docstring"""
    build: Callable[..., Method]
    """called as ``build(features, action_dim, config, generator=generator)``"""


METHODS: dict[str, Entry] = {
    "none": Entry(NoneConfig, NoMethod),
    "sibe": Entry(SIBEConfig, SIBE),
    "db": Entry(DBConfig, DB),
}


def find_method(name: str) -> Entry:
    """Return the entry called ``name``."""
    if name not in METHODS:
        raise UserError(
            f"unknown method {name!r}{nearest(name, METHODS)} (known: {', '.join(METHODS)})"
        )
    return METHODS[name]


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
    config = entry.config() if config is None else config
    if not isinstance(config, entry.config):
        raise UserError(
            f"method {name!r} takes a {entry.config.__name__}, not a {type(config).__name__}"
        )
    return entry.build(features, action_dim, config, generator=generator)
