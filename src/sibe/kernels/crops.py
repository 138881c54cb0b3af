"""Frames of three channels, cropped and stacked pixel by pixel, by ``kernels.c``."""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from numpy.typing import NDArray

from sibe.kernels.library import functions, library

Bytes = NDArray[np.uint8]
Index = NDArray[np.int64]


class _Stacks(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("states", "stack", "height", "width", "frame_bytes", "row_bytes")
    )


def available() -> bool:
    """Whether this machine has the function."""
    return library() is not None


def stack_crops(frames: Bytes, slots: Index, shifts: Index, out: Bytes) -> None:
    """Fill ``out``.

    Args:
        frames: ``[capacity, H', W', 3]``, contiguous.
        slots: which frames make a state, ``[N, S]``.
        shifts: where the crop of a state begins, ``[N, 2]`` (row, column).
        out: ``[N, H, W, 3·S]``, contiguous; a crop must lie within its frame.
    """
    (states, stack), (_, height, width, _) = slots.shape, out.shape
    margin = np.subtract(frames.shape[1:3], (height, width))
    if (
        not ((slots >= 0) & (slots < len(frames))).all()
        or not ((shifts >= 0) & (shifts <= margin)).all()
    ):
        raise IndexError("a crop lies outside of the frames")
    frame_bytes, row_bytes, pixel_bytes, _ = frames.strides
    slots = np.ascontiguousarray(slots, np.int64)
    corners = np.ascontiguousarray(shifts @ [row_bytes, pixel_bytes], np.int64)
    sizes = _Stacks(states, stack, height, width, frame_bytes, row_bytes)
    where = (ctypes.c_void_p(array.ctypes.data) for array in (frames, slots, corners, out))
    functions().sibe_stack_crops(*where, ctypes.byref(sizes), torch.get_num_threads())
