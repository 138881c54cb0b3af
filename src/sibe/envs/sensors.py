"""Sensors: what an environment shows at each step, by name.

Pixels of one camera alone are a bare array everywhere, from the simulator to the encoder; anything
else is a dict of arrays by sensor: ``pixels``, or ``pixels_<camera>`` for several cameras, and
``state``. ``each`` treats both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sibe.errors import UserError, nearest

SensorKind = Literal["pixels", "state"]
PIXELS: Final = "pixels"
STATE: Final = "state"
KINDS = (PIXELS, STATE)
Observation: TypeAlias = Any
"""An array (or tensor) of pixels alone, or a dict of them by sensor."""


def each(function: Callable[..., Any], *readings: Any) -> Any:
    """Return ``function`` of bare readings, or by sensor of dicts of readings."""
    first = readings[0]
    if not isinstance(first, dict):
        return function(*readings)
    return {name: function(*(reading[name] for reading in readings)) for name in first}


def count(readings: Any) -> int:
    """Return N of a batch of N readings, bare or by sensor."""
    return len(next(iter(readings.values())) if isinstance(readings, dict) else readings)


class Sensors(NamedTuple):
    """Which sensors there are."""

    pixels: bool = True
    state: bool = False
    """proprioception, or a Gymnasium env's own vector"""
    cameras: tuple[int, ...] = ()
    """several cameras; () for one"""

    @classmethod
    def of(cls, kinds: Iterable[str], cameras: Iterable[int] = ()) -> Sensors:
        """Return the sensors of ``kinds``, "pixels" and "state", seen by ``cameras``."""
        chosen, views = list(kinds), tuple(cameras)
        for kind in chosen:
            if kind not in KINDS:
                raise UserError(
                    f"unknown sensor {kind!r}{nearest(str(kind), KINDS)} "
                    f"(there are {' and '.join(KINDS)})"
                )
        if not chosen:
            raise UserError("an environment needs a sensor: pixels, state or both")
        for what, given in (("sensor", chosen), ("camera", views)):
            twice = next((one for one in given if list(given).count(one) > 1), None)
            if twice is not None:
                raise UserError(f"{what} {twice!r} is named twice: name each once")
        if views and PIXELS not in chosen:
            raise UserError("cameras see pixels: name the sensor pixels too, or no cameras")
        return cls(PIXELS in chosen, STATE in chosen, views if len(views) > 1 else ())

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the sensors that are pictures, in the order of the cameras."""
        if not self.pixels:
            return ()
        return tuple(f"{PIXELS}_{camera}" for camera in self.cameras) or (PIXELS,)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all sensors, in the order of a Gymnasium Dict space."""
        return tuple(sorted((*self.views, *((STATE,) if self.state else ()))))

    @property
    def bare(self) -> bool:
        """Whether an observation is one array: pixels of one camera alone."""
        return self.names == (PIXELS,)
