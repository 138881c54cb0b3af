"""Keyword arguments into a run's config, under the names that the command line's flags have.

``--env-steps 3000`` is ``env_steps=3000``, ``--sac.batch 32`` is ``sac={"batch": 32}``, and a
method's own part has its name: ``sibe={"alpha": 0.01}`` or ``sibe=SIBEConfig(alpha=0.01)``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from sibe.catalogue.registry import find_agent
from sibe.catalogue.run_config import with_defaults
from sibe.config.schema import RunConfig
from sibe.config.values import check_values
from sibe.errors import UserError, nearest

_OWN_FIELDS = ("seed", "device", "threads", "deterministic")
_FLAT = ("env", "schedule")
"""Parts of a config whose fields have flags without a dot."""


def with_overrides(config: RunConfig, overrides: Mapping[str, Any]) -> RunConfig:
    """Return ``config`` with other values.

    Raises:
        UserError: if a name is unknown, or a value is not allowed.
    """
    config = with_defaults(config)
    parts = {name: name for name in find_agent(config.method).parts}
    parts[config.method.replace("-", "_")] = "method_config"
    homes = {field.name: part for part in _FLAT for field in fields(getattr(config, part))}
    for name, given in overrides.items():
        if name in _OWN_FIELDS:
            config = replace(config, **{name: _plain(given, getattr(config, name))})
        elif name in homes:
            part = getattr(config, homes[name])
            part = replace(part, **{name: _plain(given, getattr(part, name))})
            config = replace(config, **{homes[name]: part})
        elif name in parts:
            part = _changed(getattr(config, parts[name]), name, given)
            config = replace(config, **{parts[name]: part})
        else:
            raise _unknown(name, config, parts, homes)
    return config


def _changed(part: Any, name: str, value: Any) -> Any:
    if isinstance(value, type(part)):
        return value
    if not isinstance(value, Mapping):
        raise UserError(f"{name} must be a dict or a {type(part).__name__}, not {value!r}")
    known = [field.name for field in fields(part)]
    for key in value:
        if key not in known:
            raise UserError(f"{name} has no {key!r}{nearest(str(key), known)}")
    plain = {key: _plain(one, getattr(part, key)) for key, one in value.items()}
    changed = replace(part, **plain)
    check_values(changed, name)  # a plug-in's config may be a plain dataclass
    return changed


def _plain(value: Any, before: Any) -> Any:
    """Return a value as configs have them.

    A path becomes text, a list a tuple, NumPy's number Python's, and 1e6 a whole number where the
    value ``before`` it is one.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer() and type(before) is int:
        return int(value)
    return tuple(value) if isinstance(value, list) else value


def _unknown(
    name: str, config: RunConfig, parts: Mapping[str, str], homes: Mapping[str, str]
) -> UserError:
    if name in _FLAT:
        return UserError(f"the fields of {name} are given by themselves, as in env_steps=3000")
    if name in ("sac", "encoder"):
        return UserError(f"{name} does not apply to {config.method}, a standalone agent")
    inside = [
        f"{part}={{{name!r}: …}}"
        for part, place in parts.items()
        if name in {field.name for field in fields(getattr(config, place))}
    ]
    hint = f"; did you mean {' or '.join(inside)}?" if inside else ""
    hint = hint or nearest(name, [*_OWN_FIELDS, *homes, *parts])
    return UserError(
        f"unknown option {name!r}{hint} (sibe train --method {config.method} --help lists them)"
    )
