"""What is painted behind the robot: nothing, white noise, or a moving video.

The natural setting has two protocols: ``VideoLoop``, that of DBC and DRIBO and most likely of the
paper, and ``RandomVideo``, that of TPC and DreamerPro, which is harder.

A background is asked for one picture per agent step and is driven by the environment's own
generator, so one seed gives one sequence of pictures. ``compose`` lays the robot over it by its
exact coverage, as the renderer would have laid it over the sky.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.special import ndtri

from sibe.envs.backgrounds.clips import ClipBank
from sibe.envs.backgrounds.synthetic import synthetic_bank
from sibe.envs.rendering.renderer import Frame
from sibe.envs.tasks import LOOP_FRAMES

NOISE_MEAN, NOISE_STD = 127.5, 64.0
WRAPPED_STD = 255.0
BACKGROUND_FRAME = "background_frame"
"""Key in the options of ``reset``: how many background images were shown before."""


class Start(NamedTuple):
    """How an episode begins: what a background that outlives episodes has to know."""

    seeded: bool = True
    """reset was given a seed: everything that follows must be a function of it"""
    frame: int | None = None
    """how many background images were shown before, if the caller keeps count"""

    @classmethod
    def of(cls, seed: int | None, options: Mapping[str, Any] | None) -> Start:
        """Return how ``reset(seed=seed, options=options)`` begins an episode."""
        return cls(seed is not None, (options or {}).get(BACKGROUND_FRAME))


class Background(Protocol):
    """A sequence of pictures."""

    def reset(self, rng: np.random.Generator, start: Start) -> None:
        """Begin an episode."""

    def next(self, rng: np.random.Generator) -> Frame:
        """Return the next picture: uint8 [H, W, 3]."""

    def shown(self, height: int, width: int) -> Frame:
        """Return the picture that ``next`` returned last, at another size."""


class Noise:
    """Gaussian white noise, fresh for every pixel, channel and frame.

    Args:
        height, width: of the frames.
        wrap: reproduce an older code family that writes N(0, 255²) into bytes, which wrap around
            and come out almost uniform; the default is N(127.5, 64²), clipped.
    """

    def __init__(self, height: int, width: int, *, wrap: bool = False) -> None:
        self._shape = (height, width, 3)
        self._table = noise_table(wrap)
        self._newest: Frame = np.zeros(self._shape, np.uint8)

    def reset(self, rng: np.random.Generator, start: Start) -> None:
        """No-op: noise is stateless."""

    def next(self, rng: np.random.Generator) -> Frame:
        """Return fresh noise: uint8 [H, W, 3]."""
        # One 64-bit word holds four draws; asking for 16-bit numbers takes three times as long.
        count = math.prod(self._shape)
        draws = rng.bit_generator.random_raw(-(-count // 4)).view(np.uint16)[:count]
        self._newest = self._table.take(draws).reshape(self._shape)
        return self._newest

    def shown(self, height: int, width: int) -> Frame:
        """Return the newest noise with each pixel as a block, grainy as the policy sees it."""
        image = Image.fromarray(self._newest)
        return np.array(image.resize((width, height), Image.Resampling.NEAREST))


@cache
def noise_table(wrap: bool) -> npt.NDArray[np.uint8]:
    """Return 65536 equally likely byte values: the quantiles of the noise.

    A byte has 256 values, so inverse-CDF sampling through a table is exact to 1/65536 and several
    times faster than drawing floats and clipping them.
    """
    normal: npt.NDArray[np.float64] = ndtri((np.arange(65536) + 0.5) / 65536)
    if wrap:
        return (normal * WRAPPED_STD).astype(np.int64).astype(np.uint8)
    return np.clip(np.rint(normal * NOISE_STD + NOISE_MEAN), 0, 255).astype(np.uint8)


class VideoLoop:
    """A loop of about 1000 frames that plays on across episodes, one frame per agent step.

    The loop is the first clips of the split, one after another. An episode does not restart it:
    ``reset`` without a seed continues. A seed draws a place in the loop, unless the caller says
    how many images were shown before (``options={BACKGROUND_FRAME: n}``), as training does so that
    a resumed run shows what an uninterrupted one would have shown.

    Args:
        bank: where the clips are; None for the generated bank.
        split: "train" or "eval"; the two never share a clip (unless the bank has only one).
        height, width: of the frames.
        frames: length of the loop; shorter where the split has fewer frames.
    """

    def __init__(
        self, bank: Path | None, split: str, height: int, width: int, frames: int = LOOP_FRAMES
    ) -> None:
        self._bank = _open(bank)
        playlist = (
            index
            for clip in self._bank.clips(split)
            for index in range(clip.start, clip.start + clip.frames)
        )
        self._loop = tuple(islice(playlist, frames))
        self._size = (height, width)
        self._shown = 0

    @property
    def position(self) -> int:
        """Index in the bank of the background image shown last."""
        return self._loop[(self._shown - 1) % len(self._loop)]

    def reset(self, rng: np.random.Generator, start: Start) -> None:
        """Continue, or go to the place that the start of the episode asks for."""
        if start.frame is not None:
            self._shown = start.frame
        elif start.seeded:
            self._shown = int(rng.integers(len(self._loop)))

    def next(self, rng: np.random.Generator) -> Frame:
        """Return the next frame of the loop: uint8 [H, W, 3]."""
        self._shown += 1
        return self._bank.frame(self.position, *self._size)

    def shown(self, height: int, width: int) -> Frame:
        """Return the newest frame of the loop at another size."""
        return self._bank.frame(self.position, height, width)


class RandomVideo:
    """Clips from a bank, one clip frame per agent step.

    Each episode takes a random clip and a random start in it. At its end a clip runs backwards, so
    the picture keeps moving without a cut.

    Args:
        bank: where the clips are; None for the generated bank.
        split: "train" or "eval"; the two never share a clip (unless the bank has only one).
        height, width: of the frames.
    """

    def __init__(self, bank: Path | None, split: str, height: int, width: int) -> None:
        self._bank = _open(bank)
        self._clips = self._bank.clips(split)
        self._size = (height, width)
        self._clip, self._time = self._clips[0], 0

    @property
    def position(self) -> int:
        """Index in the bank of the picture shown last."""
        period = max(2 * self._clip.frames - 2, 1)
        phase = (self._time - 1) % period
        return self._clip.start + min(phase, period - phase)

    def reset(self, rng: np.random.Generator, start: Start) -> None:
        """Choose a clip and where in it to start."""
        self._clip = self._clips[int(rng.integers(len(self._clips)))]
        self._time = int(rng.integers(self._clip.frames))

    def next(self, rng: np.random.Generator) -> Frame:
        """Return the next frame of the clip: uint8 [H, W, 3]."""
        self._time += 1
        return self._bank.frame(self.position, *self._size)

    def shown(self, height: int, width: int) -> Frame:
        """Return the newest frame of the clip at another size."""
        return self._bank.frame(self.position, height, width)


def _open(bank: Path | None) -> ClipBank:
    return synthetic_bank() if bank is None else ClipBank.open(bank)


def make_background(
    name: str,
    height: int,
    width: int,
    *,
    split: str,
    clips: Path | None,
    loop_frames: int,
    noise_wrap: bool,
) -> Background | None:
    """Return the background called ``name``; None for clean, which is left as it is."""
    if name == "noise":
        return Noise(height, width, wrap=noise_wrap)
    if name == "video":
        return VideoLoop(clips, split, height, width, loop_frames)
    if name == "video_random":
        return RandomVideo(clips, split, height, width)
    return None


def compose(robot: Frame, picture: Frame) -> Frame:
    """Lay the robot over a picture.

    Args:
        robot: uint8 [H, W, 4], color times coverage, and coverage.
        picture: uint8 [H, W, 3].

    Returns:
        uint8 [H, W, 3]; where the coverage is 0 the picture, where it is 255 the robot.
    """
    frame = picture.copy()
    pixels, layer = frame.reshape(-1, 3), robot.reshape(-1, 4)
    covered = np.flatnonzero(robot[..., 3])
    front, behind = layer[covered].astype(np.uint16), pixels[covered].astype(np.uint16)
    seen = (behind * (255 - front[:, 3:]) + 127) // 255
    pixels[covered] = np.minimum(front[:, :3] + seen, 255)
    return frame
