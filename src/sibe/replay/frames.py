"""Single frames in RAM, and the fast path from them to shifted, stacked observations.

Frames are stored with their edges replicated ``pad`` pixels outwards, so a random shift is a crop
and nothing is computed when sampling. What is left is to interleave the pixels of a stack, a few
bytes each. NumPy copies elements of 1, 2, 4, 8 bytes quickly, if one side is contiguous, and
everything else slowly (3 ns each, whatever their size): hence a pixel of 3 bytes travels as a
*word* of 4, through a contiguous scratch array that fits the cache.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sibe.kernels import crops
from sibe.replay.ring import Index

Bytes = NDArray[np.uint8]

_GRID = 8
_SCRATCH = 1 << 19  # bytes: half of a common second-level cache


def _word(channels: int) -> np.dtype[Any]:
    """Type a pixel is moved as: the integer that holds it; exact and slower beyond 8 bytes."""
    return np.dtype(f"u{1 << (channels - 1).bit_length()}" if channels <= 8 else f"V{channels}")


class FrameStore:
    """``capacity`` frames of ``shape`` (H, W, C), each padded by ``pad`` pixels on each side."""

    dtype = np.dtype(np.uint8)

    def __init__(self, capacity: int, shape: tuple[int, int, int], pad: int) -> None:
        height, width, channels = shape
        self.shape = shape
        self._pad = pad
        self._word = _word(channels)
        self._spill = self._word.itemsize - channels
        padded = (capacity, height + 2 * pad, width + 2 * pad, channels)
        # Reading the last pixel as a word spills over the end of the frames.
        memory = np.empty(int(np.prod(padded)) + self._spill, np.uint8)
        self._memory = memory
        self._frames: Bytes = memory[: memory.size - self._spill].reshape(padded)
        step = self._frames.strides
        # [capacity, dy, dx, H, W]: every crop of every frame, pixels as words.
        self._crops = np.ndarray(
            (capacity, 2 * pad + 1, 2 * pad + 1, height, width),
            self._word,
            memory,
            strides=(step[0], step[1], step[2], step[1], step[2]),
        )
        self._buffers = _Buffers()

    @property
    def nbytes(self) -> int:
        """Bytes of the frames."""
        return self._memory.nbytes

    @staticmethod
    def nbytes_for(capacity: int, shape: tuple[int, int, int], pad: int) -> int:
        """Bytes a store of this size takes."""
        height, width, channels = shape
        area = (height + 2 * pad) * (width + 2 * pad)
        return capacity * area * channels + _word(channels).itemsize - channels

    def put(self, slot: int, frame: Bytes) -> None:
        """Store ``frame`` uint8 [H, W, C]."""
        height, width, _ = self.shape
        pad = self._pad
        cell = self._frames[slot]
        rows = slice(pad, pad + height)
        cell[rows, pad : pad + width] = frame
        cell[rows, :pad] = frame[:, :1]
        cell[rows, pad + width :] = frame[:, -1:]
        cell[:pad] = cell[pad]
        cell[pad + height :] = cell[pad + height - 1]

    def get(self, slots: Index) -> Bytes:
        """Return copies of the frames in ``slots`` [N], unpadded: uint8 [N, H, W, C]."""
        height, width, _ = self.shape
        inner = self._frames[:, self._pad :, self._pad :][:, :height, :width]
        return inner[slots]

    def samples(self, slots: Index) -> Bytes:
        """Return a few pixels, on a grid and of one channel, of the frames in ``slots``: [N, P]."""
        height, width, channels = self.shape
        rows, columns = max(1, height // _GRID), max(1, width // _GRID)
        inner = self._frames[:, self._pad :, self._pad :][:, :height, :width]
        some = inner[:, rows // 2 :: rows, columns // 2 :: columns, channels // 2]
        return some[slots].reshape(len(slots), -1)

    def stacks(self, slots: Index, shifts: Index) -> Tensor:
        """Crop the frames ``slots`` [N, S] at ``shifts`` [N, 2] (dy, dx) and stack each row.

        Shifts lie in ``0 .. 2 * pad``; ``pad`` is the unshifted frame. Returns uint8
        [N, H, W, C*S] in memory of its own.
        """
        height, width, channels = self.shape
        number, stack = slots.shape
        area, depth, spill = height * width, stack * channels, self._spill
        out = self._buffers.lend(number * area * depth + spill)
        stacks = torch.from_numpy(out)[: out.size - spill].view(number, height, width, depth)
        if channels == 3 and crops.available():
            crops.stack_crops(self._frames, slots, shifts, stacks.numpy())
            return stacks
        pixels = out[: out.size - spill].reshape(-1, depth)
        places = [
            np.ndarray((number * area,), self._word, out, k * channels, (depth,))
            for k in range(stack)
        ]
        group = max(1, _SCRATCH // (stack * area * self._word.itemsize))
        for begin in range(0, number, group):
            some = slice(begin, begin + group)
            words = self._crops[slots[some].T, shifts[some, 0], shifts[some, 1]]  # [S, n, H, W]
            flat = words.reshape(stack, -1)
            here = slice(begin * area, begin * area + flat.shape[1])
            # Each word spills over the start of what follows it: the next frame of the stack,
            # written next, or the next pixel, whose first bytes are therefore written again.
            for place, frame in zip(places, flat, strict=True):
                place[here] = frame
            pixels[here, :spill] = flat[0].view(np.uint8).reshape(flat.shape[1], -1)[:, :spill]
        return stacks


class _Buffers:
    """Output memory, lent again once nobody holds a tensor on it.

    The system clears fresh memory page by page, which can take as long as filling it. A lent
    array is a view that only the tensor on it keeps alive: when it is gone, so is the tensor with
    everything that shares its memory.
    """

    def __init__(self) -> None:
        self._lent: list[tuple[Bytes, weakref.ref[Bytes]]] = []

    def lend(self, size: int) -> Bytes:
        """Return an array of ``size`` bytes whose memory nobody else uses."""
        free = (b for b, lent in self._lent if b.size == size and lent() is None)
        buffer = next(free, None)
        if buffer is None:
            buffer = np.empty(size, np.uint8)
        view = buffer.view()
        others = [entry for entry in self._lent if entry[0] is not buffer]
        # Two: the caller still holds its last chunk while it asks for the next.
        self._lent = [(buffer, weakref.ref(view)), *others][:2]
        return view
