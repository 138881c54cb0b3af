"""What a value of a config may be: said once, on the annotation of its field.

A class made by ``configuration`` checks its values whenever it is built, so that flags, a
config.json and Python code are held to the same bounds and get the same one-line message.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, dataclass_transform

from sibe.errors import UserError, nearest, printable


@dataclass(frozen=True)
class Bounds:
    """An interval of finite numbers; ``low`` belongs to it unless ``open``."""

    low: float
    high: float = math.inf
    open: bool = False

    def __contains__(self, value: float) -> bool:
        """Whether ``value`` is finite and within; NaN is not."""
        above = value > self.low if self.open else value >= self.low
        return above and value <= self.high and value <= sys.float_info.max

    def __str__(self) -> str:
        """Return what completes "must be …"."""
        if self.open:
            return f"above {self.low:g} and {_up_to(self.high)}"
        if self.high == math.inf:
            return f"at least {self.low:g} and finite"
        return f"from {self.low:g} to {self.high:g}"


def _up_to(high: float) -> str:
    return "finite" if high == math.inf else f"at most {high:g}"


Count = Annotated[int, Bounds(1)]
"""1, 2, 3, …"""
Natural = Annotated[int, Bounds(0)]
"""0, 1, 2, …"""
Positive = Annotated[float, Bounds(0, open=True)]
NonNegative = Annotated[float, Bounds(0)]
Fraction = Annotated[float, Bounds(0, 1, open=True)]
"""Above 0, at most 1."""
Unit = Annotated[float, Bounds(0, 1)]
"""0 to 1, both included."""
NON_EMPTY = "non-empty"
"""On the annotation of a tuple: it has one value or more."""


@dataclass_transform(frozen_default=True)
def configuration(flags: str = "") -> Callable[[type[Any]], type[Any]]:
    """Make a class a frozen dataclass that refuses values its annotations do not allow.

    Args:
        flags: what its command-line flags begin with: ``sac`` for ``--sac.batch``.
    """

    def decorate(cls: type[Any]) -> type[Any]:
        own = getattr(cls, "__post_init__", None)

        def __post_init__(self: Any) -> None:
            check_values(self, flags)
            if own is not None:
                own(self)

        cls.__post_init__ = __post_init__
        cls.__repr__ = _short_repr  # type: ignore[assignment]
        return dataclass(frozen=True, repr=False)(cls)

    return decorate


def _short_repr(config: Any) -> str:
    """Return the expression that builds an equal config, without what has its default value."""
    given = []
    for field in dataclasses.fields(config):
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        value = getattr(config, field.name)
        if default is dataclasses.MISSING or value != default:
            given.append(f"{field.name}={value!r}")
    return f"{type(config).__name__}({', '.join(given)})"


def check_values(config: Any, flags: str = "") -> None:
    """Refuse the first field of a dataclass whose value its annotation does not allow."""
    cls: Any = type(config)
    for name, hint in _hints(cls).items():
        value = getattr(config, name)
        wanted = _wanted(hint, value)
        if wanted is not None:
            flag = ".".join(filter(None, (flags, name.replace("_", "-"))))
            raise UserError(f"--{flag} must be {wanted}, not {value!r}")


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _wanted(hint: Any, value: Any) -> str | None:
    """Return what ``value`` must be if it is not allowed by ``hint``, else None."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        kind, *notes = args
        wanted = _wanted(kind, value)
        if NON_EMPTY in notes and value == ():
            return "a list of one value or more"
        outside = (n for n in notes if isinstance(n, Bounds) and wanted is None and value not in n)
        return next((_words(kind, bounds) for bounds in outside), wanted)
    if origin is Literal:
        if value in args:
            return None
        known = [str(choice) for choice in args]
        close = nearest(value, known) if isinstance(value, str) else ""
        return f"one of {', '.join(known)}{close.replace('; ', ' (').replace('?', '?)')}"
    if origin is tuple:
        return _wanted_tuple(args, value)
    if origin in (types.UnionType, typing.Union):
        wants = [_wanted(part, value) for part in args]
        return None if None in wants else next(words for words in wants if words != "unset")
    return _wanted_type(hint, value)


def _wanted_tuple(kinds: tuple[Any, ...], value: Any) -> str | None:
    if not isinstance(value, tuple):
        return "a list"
    if Ellipsis in kinds:
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        return f"{len(kinds)} values"
    return next((words for words in map(_wanted, kinds, value) if words), None)


def _words(kind: Any, bounds: Bounds) -> str:
    return str(bounds).removesuffix(" and finite") if kind is int else str(bounds)


_KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
    str: ("text", (str,)),
}


def type_in_words(kind: Any) -> str:
    """Return what completes "must be …" for a plain type: a whole number, a number, text, …"""
    return _KINDS[kind][0] if kind in _KINDS else str(kind)


def _wanted_type(kind: Any, value: Any) -> str | None:
    """Return what ``value`` must be if it is not of the type ``kind``; an int is a float too."""
    if kind is type(None):
        return None if value is None else "unset"
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        return None if isinstance(value, kind) else f"a {kind.__name__}"
    if kind not in _KINDS:
        return None
    words, allowed = _KINDS[kind]
    if isinstance(value, bool) and kind is not bool:
        return words
    if isinstance(value, str) and printable(value) != value:  # it will be shown
        return "text without control characters"
    return None if isinstance(value, allowed) else words
