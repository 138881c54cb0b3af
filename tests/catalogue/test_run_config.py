from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sibe.catalogue.presets import preset_config
from sibe.catalogue.registry import method_names
from sibe.catalogue.run_config import from_json, to_json, upgraded
from sibe.errors import UserError


def stored(method: str = "sibe") -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(to_json(preset_config("debug", method=method))))
    return values


@pytest.mark.parametrize("method", method_names())
def test_a_config_comes_back_from_json(method: str) -> None:
    assert from_json(stored(method)) == preset_config("debug", method=method)


def test_defaults_of_the_method_are_written_out() -> None:
    config = replace(preset_config("paper"), method_config=None)
    assert from_json(to_json(config)) == preset_config("paper")


@pytest.mark.parametrize(
    ("method", "old", "new"),
    [("db", "normalise", "normalize"), ("proto", "neighbours", "neighbors")],
)
def test_fields_in_the_spelling_of_0_1_are_read(method: str, old: str, new: str) -> None:
    values = stored(method)
    values["method_config"][old] = values["method_config"].pop(new)
    assert from_json(values) == preset_config("debug", method=method)


def test_other_methods_may_have_fields_of_those_names() -> None:
    values = stored()
    values["method"], values["method_config"] = "plug-in", {"normalise": 1, "neighbours": 2}
    assert upgraded(values)["method_config"] == {"normalise": 1, "neighbours": 2}


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("method_config", None, "method_config must be an object, not None"),
        ("method_config", [], r"method_config must be an object, not \[\]"),
        ("env", 3, "env must be an object, not 3"),
        ("method", ["sibe"], "method must be text"),
        ("sac", {"batches": 3}, "unknown field 'batches'; did you mean batch"),
        ("sac", {"batch": 1}, "--sac.batch must be at least 2, not 1"),
        ("encoder", {"strides": []}, "--encoder.strides must be a list of one value or more"),
        ("method_config", {"alpha": "x"}, "--sibe.alpha must be a number, not 'x'"),
    ],
)
def test_what_does_not_fit_is_one_line(part: str, change: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"does not fit this version of sibe: {message}"):
        from_json({**stored(), part: change})
