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
    return _parse(flag, words, sensors, 1.0, "a share from 0 to 1, as pixels=0.3", alone=1.0)


def parse_sizes(flag: str, words: Sequence[str], sensors: Sensors) -> dict[str, float]:
    """Return a number from 0 to a million by sensor, from ``sensor=number`` each.

    Larger ones drown any reading, and their squares overflow in networks of 32 bits.
    """
    wanted = "a number from 0 to 1e6, as pixels=0.1"
    return _parse(flag, words, sensors, 1e6, wanted, alone=math.nan)


def _parse(
    flag: str,
    words: Sequence[str],
    sensors: Sensors,
    most: float,
    wanted: str,
    *,
    alone: float,
) -> dict[str, float]:
    """Return amounts from 0 to ``most``; ``alone`` is that of a sensor without a number."""
    amounts: dict[str, float] = {}
    for word in words:
        name, equals, number = word.partition("=")
        try:
            amount = float(number) if equals else alone
        except ValueError:
            amount = math.nan
        if not 0 <= amount <= most:
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
