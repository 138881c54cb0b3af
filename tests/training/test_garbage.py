from __future__ import annotations

import gc
import weakref

import pytest

from sibe.training.garbage import only_new_garbage


class _Loop:
    """Refers to itself: only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


def test_old_objects_are_spared_and_new_garbage_is_collected() -> None:
    with only_new_garbage():
        assert gc.get_freeze_count() > 10_000
        made = weakref.ref(_Loop())
        gc.collect()
        assert made() is None
    assert gc.get_freeze_count() == 0


def test_after_an_error_the_collector_is_as_before() -> None:
    with pytest.raises(ValueError, match="as it happens"), only_new_garbage():
        raise ValueError("as it happens")
    assert gc.get_freeze_count() == 0
