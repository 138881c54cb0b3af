"""Keyword arguments under the names of the flags, and one line for a wrong one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sibe.api.overrides import with_overrides
from sibe.catalogue.presets import preset_config
from sibe.config.schema import SACConfig
from sibe.errors import UserError
from sibe.methods.sibe import SIBEConfig

DEBUG = preset_config("debug")


def test_every_part_of_a_config_can_be_set() -> None:
    config = with_overrides(
        DEBUG,
        {
            "seed": 3,
            "threads": 2,
            "size": 48,
            "clips": Path("bank"),
            "env_steps": 5000,
            "sac": {"batch": 32},
            "encoder": {"strides": [2, 1]},
            "sibe": SIBEConfig(alpha=0.01),
        },
    )
    assert config == replace(
        DEBUG,
        seed=3,
        threads=2,
        env=replace(DEBUG.env, size=48, clips="bank"),
        schedule=replace(DEBUG.schedule, env_steps=5000),
        sac=replace(DEBUG.sac, batch=32),
        encoder=replace(DEBUG.encoder, strides=(2, 1)),
        method_config=SIBEConfig(alpha=0.01),
    )
    assert with_overrides(DEBUG, {"sibe": {"alpha": 0.5}}).method_config.hidden == 32
    assert with_overrides(DEBUG, {"sac": SACConfig(batch=7)}).sac == SACConfig(batch=7)


def test_whole_numbers_may_come_from_numpy_or_as_1e6() -> None:
    given = {"seed": np.int64(3), "env_steps": 1e6, "sac": {"batch": np.float64(32), "lr": 1.0}}
    config = with_overrides(DEBUG, given)
    values = (config.seed, config.schedule.env_steps, config.sac.batch, config.sac.lr)
    assert values == (3, 1_000_000, 32, 1.0)
    assert [type(value) for value in values] == [int, int, int, float]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"env_step": 5}, "unknown option 'env_step'; did you mean env_steps"),
        ({"batch": 5}, "unknown option 'batch'; did you mean sac={'batch': …}?"),
        ({"alpha": 5}, "unknown option 'alpha'; did you mean sibe={'alpha': …}?"),
        ({"db": {}}, "unknown option 'db'"),
        ({"sac": {"batches": 5}}, "sac has no 'batches'; did you mean batch"),
        ({"sac": {"batch": 1}}, "--sac.batch must be at least 2, not 1"),
        ({"sac": SIBEConfig()}, "sac must be a dict or a SACConfig, not SIBEConfig()"),
        ({"env_steps": "5"}, "--env-steps must be a whole number, not '5'"),
        ({"env_steps": 1.5}, "--env-steps must be a whole number, not 1.5"),
        ({"schedule": {}}, "the fields of schedule are given by themselves"),
    ],
)
def test_a_wrong_one_is_told_in_one_line(overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        with_overrides(DEBUG, overrides)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_standalone_agent_has_no_sac() -> None:
    config = preset_config("debug", method="plan2explore")
    with pytest.raises(UserError, match="sac does not apply to plan2explore"):
        with_overrides(config, {"sac": {"batch": 4}})
    assert with_overrides(config, {"plan2explore": {}}) == config
