"""Files of random content for readers: a good file with some bytes or values changed.

``SIBE_FUZZ_MINUTES`` has each reader fuzzed for so many minutes of processor time, with new files
each time, and prints how many there were; without it there are few files, and always the same ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

from sibe.errors import UserError

MINUTES = float(os.environ.get("SIBE_FUZZ_MINUTES", "0"))
_EXAMPLES = 40
_SECONDS = 1.0
_LONGEST_LINE = 1000
_LARGE = st.sampled_from([0, -1, 2**31, 2**63, -(2**63), 10**40, 1e308, float("nan")])
_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | _LARGE
JSON = st.recursive(
    _PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def fuzz(
    strategy: st.SearchStrategy[Any], read: Callable[[Any], Any], findings: Iterable[Any] = ()
) -> None:
    """Have ``read`` take what ``strategy`` makes, and what once was not taken well.

    It must return, or raise a ``UserError`` that fits on a screen, within a second of CPU time.
    """

    files = 0

    def check(data: Any) -> None:
        nonlocal files
        files += 1
        start = time.process_time()
        try:
            read(data)
        except UserError as error:
            assert 0 < len(str(error)) < _LONGEST_LINE
        assert time.process_time() - start < _SECONDS

    checked = given(strategy)(check)
    for finding in findings:
        checked = example(finding)(checked)
    options = settings(
        max_examples=_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=not MINUTES,
        suppress_health_check=list(HealthCheck),
    )
    options(checked)()
    many = settings(options, max_examples=100)
    # Processor time: a machine that does other things as well must not pass for a long test.
    end = time.process_time() + 60 * MINUTES
    while time.process_time() < end:
        many(seed(time.time_ns())(given(strategy)(check)))()
    print(f"{files} files")


def changed_bytes(good: bytes) -> st.SearchStrategy[bytes]:
    """Return ``good`` with pieces replaced, cut out, repeated or put in; or anything else."""
    place = st.integers(0, len(good))
    # Damage is more telling at the beginning, where formats keep their lengths.
    where = place | st.integers(0, min(len(good), 256))
    edit = st.tuples(where, st.integers(0, 8) | place, st.binary(max_size=8))
    return st.lists(edit, min_size=1, max_size=4).map(lambda edits: _edit(good, edits)) | st.binary(
        max_size=64
    )


def _edit(good: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    data = bytearray(good)
    for start, length, new in edits:
        data[start : start + length] = new
    return bytes(data)


@st.composite
def changed_json(draw: st.DrawFn, good: Any) -> Any:
    """Return ``good`` with some values replaced, removed or added."""
    value = good
    for _ in range(draw(st.integers(1, 3))):
        value = _change(draw, value)
    return value


def _change(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(value)))
        if not draw(st.integers(0, 9)):
            return {name: inner for name, inner in value.items() if name != key}
        if not draw(st.integers(0, 9)):
            return {**value, draw(st.text(max_size=8)): draw(JSON)}
        return {**value, key: _change(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _change(draw, value[place]), *value[place + 1 :]]
    return draw(JSON)
