"""Frames as the agent sees them, where that is not as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sibe.replay.frames import Bytes, FrameStore
from sibe.replay.ring import Index

Look = Callable[[Bytes], Bytes]
"""A frame uint8 [H, W, C] -> what is seen of it."""


class SeenFrames:
    """What a replay shows of its frames in place of them.

    Args:
        look: what is seen of a frame; it may change, and `again` then shows what it has become.
        stores: the frames themselves, of each camera.
        capacity, pad: of the stores.
    """

    def __init__(
        self, look: Look, stores: Mapping[str, FrameStore], capacity: int, pad: int
    ) -> None:
        self._look, self._whole = look, stores
        self.stores = {
            name: FrameStore(capacity, store.shape, pad) for name, store in stores.items()
        }

    def put(self, slot: int, readings: Mapping[str, NDArray[Any]]) -> None:
        """Look at the frames of all cameras that are put into ``slot``."""
        for name, store in self.stores.items():
            store.put(slot, self._look(readings[name]))

    def again(self, slots: Index) -> None:
        """Look again at all that is in ``slots``."""
        for slot in slots.tolist():
            where = np.array([slot])
            self.put(slot, {name: store.get(where)[0] for name, store in self._whole.items()})
