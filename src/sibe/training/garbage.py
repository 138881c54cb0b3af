"""Spare the garbage collector what is there before training begins.

The imported libraries are some hundred thousand objects that live as long as the process. Python's
collector looks at all of them again whenever enough new ones were made, and an update makes
thousands: a tenth of its time. Frozen, they are passed over; what training makes is collected as
before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_new_garbage() -> Iterator[None]:
    """Have the collector look only at objects made from here on, until the end of the block."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
