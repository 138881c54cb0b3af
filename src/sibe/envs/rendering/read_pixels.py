"""The pixels of MuJoCo's offscreen buffer with their alpha.

By OpenGL's own functions: PyOpenGL's wrappers look for errors after each call and convert what
they return, which takes longer than the reading of a small frame.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_READ_FRAMEBUFFER, _DRAW_FRAMEBUFFER, _FRAMEBUFFER = 0x8CA8, 0x8CA9, 0x8D40
_COLOR_BUFFER_BIT, _NEAREST = 0x4000, 0x2600
_RGBA, _UNSIGNED_BYTE = 0x1908, 0x1401
_Int, _Name, _Bits = ctypes.c_int, ctypes.c_uint, ctypes.c_uint


class _Functions(NamedTuple):
    bind: Any
    """target, buffer"""
    blit: Any
    """four corners of the source, four of the target, which buffers, how"""
    read: Any
    """x, y, width, height, format, type, where to"""


@functools.cache
def _functions() -> _Functions:
    return _Functions(
        _find("glBindFramebuffer", _Name, _Name),
        _find("glBlitFramebuffer", *[_Int] * 8, _Bits, _Name),
        _find("glReadPixels", *[_Int] * 4, _Name, _Name, ctypes.c_void_p),
    )


def _find(name: str, *types: Any) -> Any:
    """Return OpenGL's function, of the library that PyOpenGL has loaded for the backend."""
    from OpenGL.platform import PLATFORM

    try:
        address = ctypes.cast(getattr(PLATFORM.GL, name), ctypes.c_void_p).value
    except AttributeError:  # what came after OpenGL 1.2 need not be exported
        address = PLATFORM.getExtensionProcedure(name.encode())
    assert address, name
    return ctypes.CFUNCTYPE(None, *types)(address)


def read_rgba(context: Any, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return what was drawn last, uint8 [H, W, 4], the lowest row first.

    Args:
        context: MuJoCo's ``MjrContext``; its OpenGL context is the current one.
        height, width: of the frame, which is no larger than the offscreen buffer.
    """
    call = _functions()
    if context.offSamples:
        call.bind(_READ_FRAMEBUFFER, context.offFBO)
        call.bind(_DRAW_FRAMEBUFFER, context.offFBO_r)
        call.blit(0, 0, width, height, 0, 0, width, height, _COLOR_BUFFER_BIT, _NEAREST)
        call.bind(_READ_FRAMEBUFFER, context.offFBO_r)
    pixels = np.empty((height, width, 4), np.uint8)
    call.read(0, 0, width, height, _RGBA, _UNSIGNED_BYTE, pixels.ctypes.data)
    call.bind(_FRAMEBUFFER, context.offFBO)
    return pixels
