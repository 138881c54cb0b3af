"""What makes a class a method: how it is configured, built, paid and drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from sibe.methods.base import Method


class Entry(NamedTuple):
    """A method by name: an entry of the catalogue, or what a plug-in offers."""

    config: type[Any]
    """frozen dataclass; every field has a default and a docstring"""
    build: Callable[..., Method]
    """called as ``build(features, action_dim, config, generator=generator)``"""
    bonus_field: str | None = "intrinsic"
    """field of the config that scales the bonus, 0 for none; None: the method never pays one"""
    label: str | None = None
    """what tables and figures call it; None for its name"""
    color: str | None = None
    """of its curves, as #RRGGBB; None for the next free one"""
    cpu: Mapping[str, Any] = MappingProxyType({})
    """values of its config in the ``cpu`` preset, beside those that all methods get by name"""
