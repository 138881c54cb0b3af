from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import pytest

from sibe.config.values import (
    NON_EMPTY,
    Bounds,
    Count,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    Unit,
    configuration,
)
from sibe.errors import UserError


@configuration("part")
class Example:
    """One field of each kind."""

    count: Count = 3
    natural: Natural = 0
    few: Annotated[int, Bounds(2, 4)] = 2
    positive: Positive = 0.5
    weight: NonNegative = 0.0
    fraction: Fraction = 1.0
    unit: Unit = 0.0
    mode: Literal["sum", "mean"] = "sum"
    on: bool = False
    name: str = "a"
    camera: int | None = None
    strides: Annotated[tuple[Count, ...], NON_EMPTY] = (2, 1)
    names: tuple[str, ...] = ()
    pair: tuple[int, str] = (1, "a")
    anything: Any = None


ALLOWED = [
    *({"count": 1}, {"natural": 7}, {"few": 4}, {"positive": 1e-9}, {"positive": 3}),
    *({"weight": 0}, {"fraction": 1}, {"unit": 1.0}, {"mode": "mean"}, {"on": True}),
    *({"camera": 2}, {"camera": -1}, {"strides": (1,)}, {"pair": (2, "b")}, {"anything": {1, 2}}),
]
REFUSED = [
    ({"count": 0}, "--part.count must be at least 1, not 0"),
    ({"count": 1.0}, "--part.count must be a whole number, not 1.0"),
    ({"count": True}, "--part.count must be a whole number, not True"),
    ({"natural": -1}, "--part.natural must be at least 0, not -1"),
    ({"few": 5}, "--part.few must be from 2 to 4, not 5"),
    ({"positive": 0.0}, "--part.positive must be above 0 and finite, not 0.0"),
    ({"positive": math.inf}, "--part.positive must be above 0 and finite, not inf"),
    ({"positive": "1"}, "--part.positive must be a number, not '1'"),
    ({"weight": -0.1}, "--part.weight must be at least 0 and finite, not -0.1"),
    ({"weight": math.nan}, "--part.weight must be at least 0 and finite, not nan"),
    ({"fraction": 0.0}, "--part.fraction must be above 0 and at most 1, not 0.0"),
    ({"unit": 1.1}, "--part.unit must be from 0 to 1, not 1.1"),
    ({"mode": "men"}, "--part.mode must be one of sum, mean (did you mean mean?), not 'men'"),
    ({"on": 1}, "--part.on must be true or false, not 1"),
    ({"name": 3}, "--part.name must be text, not 3"),
    ({"camera": "side"}, "--part.camera must be a whole number, not 'side'"),
    ({"strides": (2, 0)}, "--part.strides must be at least 1, not (2, 0)"),
    ({"strides": [2, 1]}, "--part.strides must be a list, not [2, 1]"),
    ({"strides": ()}, "--part.strides must be a list of one value or more, not ()"),
    ({"pair": (2,)}, "--part.pair must be 2 values, not (2,)"),
    ({"pair": (2, 3)}, "--part.pair must be text, not (2, 3)"),
    ({"positive": 10**400}, f"--part.positive must be above 0 and finite, not {10**400}"),
]


@pytest.mark.parametrize("values", ALLOWED, ids=str)
def test_what_the_annotation_allows_is_kept(values: dict[str, Any]) -> None:
    (name, value), *_ = values.items()
    assert getattr(Example(**values), name) == value


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=str)
def test_anything_else_is_refused_by_its_flag(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        Example(**values)
    assert str(caught.value) == message


def test_flags_have_hyphens_and_a_part_may_have_none() -> None:
    @configuration()
    class Whole:
        env_steps: Count = 1

    with pytest.raises(UserError, match=r"^--env-steps must be"):
        Whole(env_steps=0)


def test_a_class_checks_its_own_rules_after_its_values() -> None:
    @configuration("pair")
    class Pair:
        low: Count = 1
        high: Count = 2

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise UserError("low above high")

    with pytest.raises(UserError, match="at least 1"):
        Pair(low=0, high=-1)
    with pytest.raises(UserError, match="low above high"):
        Pair(low=3)


def test_a_part_must_be_of_its_class() -> None:
    @configuration()
    class Outer:
        inner: Example

    with pytest.raises(UserError, match="--inner must be a Example, not None"):
        Outer(inner=None)  # type: ignore[arg-type]


def test_the_repr_builds_an_equal_config_and_leaves_out_defaults() -> None:
    from sibe.catalogue.presets import preset_config
    from sibe.config.schema import EncoderConfig, EnvConfig, RunConfig, SACConfig, ScheduleConfig
    from sibe.methods.sibe import SIBEConfig

    assert repr(Example(count=7, mode="mean")) == "Example(count=7, mode='mean')"
    config = preset_config("cpu", background="noise")
    names = (EncoderConfig, EnvConfig, RunConfig, SACConfig, ScheduleConfig, SIBEConfig)
    assert eval(repr(config), {cls.__name__: cls for cls in names}) == config
    assert "env=EnvConfig(background='noise', " in repr(config)
