"""The robot over a picture, blocks averaged, and frames side by side, by ``layers.c``.

NumPy goes over the pixels a dozen times, or moves them three bytes at a time, for the same bytes;
the twins are ``compose``, ``average_blocks`` and ``np.concatenate`` in ``sibe.envs``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sibe.kernels.library import functions, library

Bytes = NDArray[np.uint8]


def available() -> bool:
    """Whether this machine has the function."""
    return library() is not None


def lay_over(robot: Bytes, picture: Bytes, side: int) -> Bytes:
    """Return the means of blocks of side × side pixels, ``[H / side, W / side, 3]``.

    Args:
        robot: ``[H, W, 4]``, color times coverage, and coverage; rows without gaps, which may lie
            in any order.
        picture: ``[H, W, 3]``.
        side: divides H and W.
    """
    height, width, _ = picture.shape
    if robot.shape != (height, width, 4) or height % side or width % side:
        raise ValueError(f"{robot.shape} over {picture.shape} in blocks of {side}")
    if robot.strides[1:] != (4, 1):
        robot = np.ascontiguousarray(robot)
    picture = np.ascontiguousarray(picture)
    out = np.empty((height // side, width // side, 3), np.uint8)
    functions().sibe_lay_over(
        ctypes.c_void_p(robot.ctypes.data),
        ctypes.c_int64(robot.strides[0]),
        ctypes.c_void_p(picture.ctypes.data),
        ctypes.c_void_p(out.ctypes.data),
        *(ctypes.c_int64(number) for number in (height, width, side)),
    )
    return out


def side_by_side(frames: Sequence[Bytes]) -> Bytes:
    """Return frames ``[H, W, 3]``, contiguous, along their last axis: ``[H, W, 3·N]``."""
    height, width, _ = frames[0].shape
    if any(frame.shape != (height, width, 3) or not frame.flags.c_contiguous for frame in frames):
        raise ValueError("not frames of one size and three channels")
    out = np.empty((height, width, 3 * len(frames)), np.uint8)
    functions().sibe_side_by_side(
        (ctypes.c_void_p * len(frames))(*(frame.ctypes.data for frame in frames)),
        *(ctypes.c_int64(number) for number in (len(frames), height * width)),
        ctypes.c_void_p(out.ctypes.data),
    )
    return out
