"""Rules that the settings of methods keep, each refused in one line that names the setting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from sibe.errors import UserError


class Rule(NamedTuple):
    """What a value must be."""

    words: str
    """completes "give …" """
    holds: Callable[[float], bool]
    """whether a value keeps it; false for NaN"""


NOT_NEGATIVE = Rule("a finite number that is 0 or more", lambda value: 0 <= value < math.inf)
POSITIVE = Rule("a finite number above 0", lambda value: 0 < value < math.inf)
UNIT = Rule("a number from 0 to 1", lambda value: 0 <= value <= 1)
SHARE = Rule("a number above 0 and at most 1", lambda value: 0 < value <= 1)


def whole(least: int) -> Rule:
    """Return the rule "a whole number, ``least`` or more"."""
    return Rule(
        f"a whole number, {least} or more",
        lambda value: isinstance(value, int) and value >= least,
    )


def check(method: str, config: object, rule: Rule, *names: str) -> None:
    """Refuse the first of the fields ``names`` of ``config`` that breaks ``rule``."""
    for name in names:
        value = getattr(config, name)
        if not rule.holds(value):
            raise UserError(f"{method}: {name} is {value}: give {rule.words}")
