"""The harness itself: what it must notice."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fuzzing import changed_json, fuzz
from hypothesis import find
from hypothesis import strategies as st

from sibe.errors import UserError


def traceback(data: bytes) -> None:
    raise ZeroDivisionError


def endless(data: bytes) -> None:
    raise UserError("word " * 1000)


def slow(data: bytes) -> None:
    end = time.process_time() + 1.1
    while time.process_time() < end:
        pass


@pytest.mark.parametrize("read", [traceback, endless, slow])
def test_what_is_wrong_is_noticed(read: Any) -> None:
    with pytest.raises((ZeroDivisionError, AssertionError)):
        fuzz(st.just(b""), read)


def test_findings_are_tried_first() -> None:
    seen: list[bytes] = []
    fuzz(st.just(b"new"), seen.append, findings=[b"old"])
    assert seen[0] == b"old" and b"new" in seen


@pytest.mark.parametrize(
    "unlike",
    [
        lambda value: isinstance(value, dict) and value.get("a", [1, 2]) != [1, {"b": 2}],
        lambda value: isinstance(value, dict) and "a" not in value,
        lambda value: not isinstance(value, dict),
    ],
)
def test_values_are_changed_anywhere(unlike: Any) -> None:
    find(changed_json({"a": [1, {"b": 2}], "c": 3}), unlike)
