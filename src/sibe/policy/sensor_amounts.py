"""Words such as ``pixels=0.3`` on the command line: an amount by sensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sibe.envs.sensors import PIXELS, Sensors
from sibe.errors import UserError, nearest


def parse_shares(flag: str, words: Sequence[str], sensors: Sensors) -> dict[str, float]:
    """Return a share from 0 to 1 by sensor, from ``sensor=share`` each; ``sensor`` alone is 1.

    ``pixels`` stands for all cameras.
    """
    return _parse(flag, words, sensors, 1.0, "a share from 0 to 1, as pixels=0.3")


def parse_sizes(flag: str, words: Sequence[str], sensors: Sensors) -> dict[str, float]:
    """Return a number from 0 on by sensor, from ``sensor=number`` each."""
    return _parse(flag, words, sensors, math.inf, "a number from 0 on, as pixels=0.1")


def _parse(
    flag: str, words: Sequence[str], sensors: Sensors, most: float, wanted: str
) -> dict[str, float]:
    amounts: dict[str, float] = {}
    for word in words:
        name, equals, number = word.partition("=")
        try:
            amount = float(number) if equals else most
        except ValueError:
            amount = -1.0
        if not 0 <= amount <= most or not math.isfinite(amount):
            raise UserError(f"{flag} {word}: give a sensor and {wanted}")
        meant = sensors.views if name == PIXELS else (name,)
        if not meant or not set(meant) <= set(sensors.names):
            raise UserError(
                f"{flag} {word}: the agent has no sensor {name!r}{nearest(name, sensors.names)} "
                f"(it has {', '.join(sensors.names)})"
            )
        if amounts.keys() & set(meant):
            raise UserError(f"{flag} {word}: {name} is named twice: name each once")
        amounts |= dict.fromkeys(meant, amount)
    return amounts
