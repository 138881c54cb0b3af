"""Command-line words into dataclasses: tyro parses, and a mistake becomes one line.

tyro frames its messages in boxes whose layout is no interface. So only the fact that it refused a
line is taken from it; what is wrong is found here, from the fields of the dataclass.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import io
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.conf import Positional, subcommand

from sibe.config.values import type_in_words
from sibe.errors import UserError, nearest

_POSITIONAL = get_args(Positional[int])[1]
_SCIENTIFIC = re.compile(r"[+-]?\d+(\.\d+)?[eE]\+?\d{1,2}")


class Group(NamedTuple):
    """Commands under one name."""

    description: str
    commands: Mapping[str, Any]
    """dataclasses with a method ``run``, or groups"""


class Option(NamedTuple):
    """An argument of a command: a flag, or a positional one."""

    name: str
    """as it is typed, or the placeholder of a positional argument"""
    kind: Any
    required: bool
    positional: bool


def parse(kind: Any, args: Sequence[str], *, prog: str = "sibe") -> Any:
    """Return the dataclass ``kind``, or the one that the first word names, filled from ``args``.

    Raises:
        UserError: if ``args`` do not fit.
        SystemExit: after --help.
    """
    if isinstance(kind, Group):
        names = ", ".join(kind.commands)
        if not args:
            raise UserError(f"{prog} needs a command: {names}")
        if args[0] in ("-h", "--help"):
            return _print_help(kind, prog)
        if args[0] not in kind.commands:
            hint = nearest(args[0], kind.commands)
            raise UserError(f"unknown command {args[0]!r}{hint} (there are {names})")
        return parse(kind.commands[args[0]], args[1:], prog=f"{prog} {args[0]}")
    args = _whole_numbers(kind, args)
    try:
        return _run_tyro(kind, args, prog)
    except _Refused as refused:
        message = _mistake(kind, args) or str(refused)
    raise UserError(f"{message} (see {prog} --help)")


class _Refused(Exception):
    """tyro did not accept a line; all that it wrote about it, without the lines it drew."""


def _run_tyro(kind: Any, args: Sequence[str], prog: str) -> Any:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return tyro.cli(kind, args=args, prog=prog)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
    # Rulers are of dashes where the terminal has no box characters.
    words = (word for word in re.findall(r"[^\s─-╿]+", printed.getvalue()) if word.strip("-"))
    raise _Refused(" ".join(words).partition(" For full helptext")[0])


def options(kind: Any, prefix: str = "") -> Iterator[Option]:
    """Yield the arguments that tyro makes of a dataclass and those inside it."""
    hints, annotated = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint, marks = hints[field.name], _marks(annotated[field.name])
        names = [mark.name for mark in marks if getattr(mark, "name", None) is not None]
        path = ".".join(part for part in (prefix, *(names or [field.name])) if part)
        if dataclasses.is_dataclass(hint):
            yield from options(hint, path)
            continue
        positional = _POSITIONAL in marks
        name = field.name.strip("_").upper() if positional else f"--{path.replace('_', '-')}"
        default = field.default, field.default_factory
        required = default == (dataclasses.MISSING, dataclasses.MISSING)
        yield Option(name, hint, required, positional)


def _marks(hint: Any) -> tuple[Any, ...]:
    """Return what a type is annotated with."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _whole_numbers(kind: Any, args: Sequence[str]) -> list[str]:
    """Return the words with 1e6 as 1000000 wherever a whole number is expected."""
    flags = {option.name for option in options(kind) if _is_whole(option.kind)}
    words, flag = [], ""
    for word in args:
        name, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        flag = name.replace("_", "-") or flag
        words.append(name + equals + (_digits(value) if flag in flags else value))
    return words


def _is_whole(kind: Any) -> bool:
    """Tell whether values of a type are whole numbers: int, int | None, tuple[int, ...]."""
    parts = [part for part in get_args(kind) if part not in (NoneType, ...)]
    return all(map(_is_whole, parts)) if parts else kind is int


def _digits(word: str) -> str:
    number = Decimal(word) if _SCIENTIFIC.fullmatch(word) else None
    return str(int(number)) if number is not None and number == int(number) else word


def _print_help(group: Group, prog: str) -> None:
    kinds = []
    for name, kind in group.commands.items():
        if isinstance(kind, Group):
            description, kind = kind.description, dataclasses.make_dataclass(name, [])
            kind.__doc__ = description
        kinds.append(Annotated[kind, subcommand(name)])
    choice: Any = functools.reduce(operator.or_, kinds)
    tyro.cli(choice, args=["--help"], prog=prog, description=group.description)


def _mistake(kind: Any, args: Sequence[str]) -> str | None:
    """Return what is wrong with a line that tyro refused; None if nothing is found."""
    every = list(options(kind))
    flags = {option.name: option for option in every if not option.positional}
    switches = {f"--no-{name[2:]}" for name, option in flags.items() if option.kind is bool}
    loose, given = _grouped(args)
    for flag, words in given:
        if flag in switches:
            loose += words
            continue
        if flag not in flags:
            return f"unknown option {flag}{_nearest_flag(flag, flags)}"
        taken = _count(flags[flag].kind, len(words))
        if len(words) < taken:
            return f"{flag} needs {taken} values" if taken > 1 else f"{flag} needs a value"
        if taken and not _fits(flags[flag].kind, words[:taken]):
            return f"{flag} must be {_expected(flags[flag].kind)}, not {' '.join(words[:taken])!r}"
        loose += words[taken:]
    return _wrong_number(every, loose, {flag for flag, _ in given})


def _wrong_number(every: Sequence[Option], loose: Sequence[str], given: set[str]) -> str | None:
    """Return what is missing, or too much; ``loose`` are the words that belong to no flag."""
    positional = [option for option in every if option.positional]
    needed = [option.name for option in positional if option.required][len(loose) :]
    needed += [o.name for o in every if o.required and not o.positional and o.name not in given]
    if needed:
        return f"missing: {', '.join(needed)}"
    most = sum(_count(option.kind, len(loose)) for option in positional)
    return f"unexpected {loose[most]!r}" if len(loose) > most else None


def _grouped(args: Sequence[str]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the words before the first flag, and each flag with the words behind it."""
    loose: list[str] = []
    given: list[tuple[str, list[str]]] = []
    for word in args:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            given.append((flag.replace("_", "-"), [value] if equals else []))
        else:
            (given[-1][1] if given else loose).append(word)
    return loose, given


def _nearest_flag(flag: str, flags: Mapping[str, Option]) -> str:
    within = [name for name in flags if name.endswith(f".{flag[2:]}")]
    close = within or difflib.get_close_matches(flag, flags, n=1)
    return f"; did you mean {', '.join(close)}?" if close else ""


def _count(kind: Any, there: int) -> int:
    """Return how many words a value of this type takes, if ``there`` are so many."""
    if kind is bool:
        return 0
    inner = get_args(kind) if get_origin(kind) is tuple else (kind,)
    return there if Ellipsis in inner else len(inner)


def _fits(kind: Any, words: Sequence[str]) -> bool:
    one = dataclasses.make_dataclass("One", [("value", kind)])
    try:
        _run_tyro(one, ["--value", *words], "")
    except _Refused:
        return False
    return True


def _expected(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_expected(part) for part in get_args(kind) if part is not NoneType)
    if get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is Literal:
        return f"some of {', '.join(map(str, get_args(get_args(kind)[0])))}"
    if get_origin(kind) is tuple:
        return _expected(get_args(kind)[0]).split(" ", 1)[-1] + "s"
    return "a path" if kind is Path else type_in_words(kind)
