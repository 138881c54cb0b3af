"""Episodes as MP4 files that play anywhere: H.264 where PyAV has it, else MPEG-4, in yuv420p."""

from __future__ import annotations

import io
from collections.abc import Iterable
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sibe.errors import UserError
from sibe.storage.atomic import make_folder, write_atomic

_VISIBLE = 240  # pixels of the longer side, below which a picture is too small to watch


def write_mp4(path: Path, frames: Iterable[NDArray[np.uint8]], fps: float) -> None:
    """Write a video: whole, or not at all.

    Args:
        path: an .mp4 file; its folder is made, an earlier file is replaced.
        frames: uint8 [H, W, 3], all of one size; read once, in order. Small ones are enlarged by a
            whole factor, odd sizes are padded to even ones, which yuv420p needs.
        fps: frames per second; an env's own, ``metadata["render_fps"]``, plays in real time.
    """
    video = _encode(check_mp4(path), frames, fps)
    try:
        make_folder(path.parent)
        write_atomic(path, video)
    except OSError as error:
        why = error.strerror
        raise UserError(f"cannot write {path} ({why}): make room or choose another") from error


def check_mp4(path: Path) -> Any:
    """Return PyAV if a video can be written to ``path``; ask before a long episode is played."""
    if path.suffix.lower() != ".mp4":
        raise UserError(f"the video must be an .mp4 file, not {path.name!r}")
    try:
        import av
    except ImportError as error:
        raise UserError("videos need PyAV: pip install 'sibe[video]'") from error
    return av


def enlarge(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return [H, W, 3] with each pixel as a block, at least 240 on the longer side, sizes even."""
    factor = max(1, -(-_VISIBLE // max(frame.shape[:2])))
    blocks = frame.repeat(factor, axis=0).repeat(factor, axis=1)
    height, width = blocks.shape[:2]
    return np.pad(blocks, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


def _encode(av: Any, frames: Iterable[NDArray[np.uint8]], fps: float) -> bytes:
    iterator = iter(frames)
    first = next(iterator, None)
    if first is None:
        raise ValueError("a video needs at least one frame")
    video = io.BytesIO()
    with av.open(video, "w", format="mp4") as container:
        stream = _add_stream(av, container, fps)
        stream.height, stream.width = enlarge(first).shape[:2]
        for frame in chain((first,), iterator):
            if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape != first.shape:
                raise ValueError(f"{frame.dtype} {frame.shape} in a video of uint8 {first.shape}")
            picture = av.VideoFrame.from_ndarray(enlarge(frame), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return video.getvalue()


def _add_stream(av: Any, container: Any, fps: float) -> Any:
    rate = Fraction(fps).limit_denominator(1000)  # 12.5 is 25/2
    try:
        stream = container.add_stream("libx264", rate=rate)
    except av.codec.codec.UnknownCodecError:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.bit_rate = 4_000_000
    stream.pix_fmt = "yuv420p"
    # One thread writes the same bytes on every machine.
    stream.thread_count = 1
    return stream
