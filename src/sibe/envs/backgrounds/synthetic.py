"""The clips used when the user has none: generated, and labeled as such.

Each clip is a dead-leaves movie: discs with radii p(r) ∝ r^-3 that hide one another, each with a
color and a 1/f texture of its own, drifting at its own velocity before a panning camera. Such
images have what makes natural video a hard background: edges at every scale, a power spectrum
near 1/f² and correlated colors (Lee, Mumford & Huang, IJCV 2001). One version of the generator
gives one bank, made on first use and kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sibe.envs.backgrounds.clips import ClipBank, Footage, write_bank
from sibe.errors import UserError
from sibe.storage.cache import cache_folder
from sibe.storage.temporary_folder import remove_leftovers

GENERATOR = 2  # to be raised with every change of the pixels: the cache is keyed by it
SIZE, FRAMES = 84, 250
CLIPS = {"train": 8, "eval": 4}

R_MIN, R_MAX = 2.25, 36.0  # pixels
COVERAGE = 2.5  # leaves above an average pixel
DRIFT = 0.08  # pixels a frame: standard deviation of a leaf's own velocity
PAN, SWAY = 0.25, 4.0  # pixels a frame; pixels
TEXTURE = 0.7  # contrast of the texture, in units of the contrast between leaves
# Luminance, red-green and yellow-blue are nearly uncorrelated in nature and the last two weak:
# that is, red, green and blue go together.
OPPONENT = np.diag([1, 0.09, 0.27]) @ [[1, 1, 1], [1, -1, 0], [0.5, 0.5, -1]]

# The world is a torus; its unseen part is wide enough for any leaf to go round out of sight.
MARGIN = math.ceil(R_MAX) + 3
WORLD = SIZE + 2 * MARGIN

Floats = NDArray[np.float32]


def synthetic_bank(cache: Path | None = None) -> ClipBank:
    """Open the generated bank; the first call makes it, which takes some seconds.

    Args:
        cache: where it is kept; ``$XDG_CACHE_HOME/sibe`` or ``~/.cache/sibe`` if not given.
    """
    folder = (cache or cache_folder()) / f"synthetic-v{GENERATOR}"
    remove_leftovers(folder.parent, f".{folder.name}.")
    try:
        if not folder.exists():
            write_bank(folder, _footage(), _split, kind="synthetic", size=SIZE)
    except (UserError, OSError) as error:
        # Another process may have been quicker: its frames are the same.
        if not os.path.exists(folder):
            fix = "set XDG_CACHE_HOME to a folder that you can write to"
            raise UserError(f"cannot keep the synthetic clips: {error}; {fix}") from error
    try:
        return ClipBank.open(folder)
    except UserError as error:
        raise UserError(f"{folder} is damaged: delete it, it will be made again") from error


def _footage() -> Iterator[Footage]:
    for key, (split, count) in enumerate(CLIPS.items()):
        for number in range(count):
            frames = movie(np.random.default_rng([GENERATOR, key, number]))
            sha256 = hashlib.sha256(frames.tobytes()).hexdigest()
            yield Footage(f"synthetic-{split}-{number:02d}", sha256, frames)


def _split(sources: Sequence[str]) -> list[str]:
    return [source.split("-")[1] for source in sources]


def movie(rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a dead-leaves movie, uint8 [FRAMES, SIZE, SIZE, 3]."""
    mean_area = 2 * math.pi * math.log(R_MAX / R_MIN) / (R_MIN**-2 - R_MAX**-2)
    count = round(COVERAGE * WORLD**2 / mean_area)
    # Inverse of the distribution function of p(r) ∝ r^-3 on [R_MIN, R_MAX].
    radii = R_MIN / np.sqrt(1 - rng.uniform(size=count) * (1 - (R_MIN / R_MAX) ** 2))
    colors = rng.normal(size=(count, 3)) @ OPPONENT
    paths = _paths(rng, count)
    sheet = pink_noise(rng, WORLD)
    corners = rng.integers(WORLD, size=(count, 2))
    canvas = np.empty((3, FRAMES + 2, WORLD, WORLD), np.float32)
    canvas[:] = sheet[:, None]  # seen between the leaves: too far away to move
    for radius, color, path, corner in zip(radii, colors, paths, corners, strict=True):
        reach = math.ceil(radius) + 1
        seen = np.all((path > MARGIN - reach - 1) & (path < MARGIN + SIZE + reach), axis=1)
        if seen.any():
            offsets, taps = _leaf(radius, color, corner, sheet)
            _paint(canvas, offsets, taps, path, seen.nonzero()[0])
    visible = slice(MARGIN, MARGIN + SIZE)
    frames = canvas[:, 1:-1, visible, visible].copy()
    low, high = np.percentile(frames[:, ::10], [1, 99]).tolist()
    gray = ((frames - low) * (255 / (high - low))).round().clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(gray, 0, -1))


def pink_noise(rng: np.random.Generator, side: int) -> Floats:
    """Return seamless noise [3, side, side] with power 1/f², colored by ``OPPONENT``."""
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = np.inf  # no mean
    spectrum = np.fft.rfft2(rng.normal(size=(3, side, side))) / frequency
    fields = np.fft.irfft2(spectrum, s=(side, side))
    fields /= fields.std(axis=(1, 2), keepdims=True)
    return np.tensordot(OPPONENT.T, fields, axes=1).astype(np.float32)


def _paths(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return where each leaf is in each frame, [count, FRAMES, 2], the farthest leaf first."""
    t = np.arange(FRAMES)[:, None]
    heading, phase = rng.uniform(0, 2 * math.pi, 2)
    pan = PAN * t * [math.cos(heading), math.sin(heading)]
    camera = pan + SWAY * np.sin(2 * math.pi * t / FRAMES * [1.5, 2.0] + phase)
    # The nearer a leaf, the faster it passes by.
    parallax = np.linspace(0.5, 1.5, count)[:, None, None]
    start, velocity = rng.uniform(0, WORLD, (count, 1, 2)), rng.normal(0, DRIFT, (count, 1, 2))
    paths: NDArray[np.float64] = (start + velocity * t - parallax * camera) % WORLD
    return paths


def _leaf(
    radius: float, color: NDArray[np.float64], corner: NDArray[np.int64], sheet: Floats
) -> tuple[NDArray[np.intp], Floats]:
    """Return a leaf's n pixels as offsets [n] in a flat frame, and what it puts there.

    That is [4, 4, n]: red, green, blue (each times alpha) and alpha, with the leaf on its place
    and shifted by one pixel in x, in y and in both. A leaf between pixels is a mixture of these.
    """
    reach = math.ceil(radius) + 1
    axis = np.arange(-reach, reach + 1)
    alpha = np.clip(3 * (radius - np.hypot(axis[:, None], axis)) + 0.5, 0, 1)
    rows, columns = (corner[:, None] + axis) % WORLD
    texture = color[:, None, None] + TEXTURE * sheet[:, rows[:, None], columns]
    image = np.concatenate([texture * alpha, alpha[None]])
    # The outermost pixels are empty: nothing rolls round.
    taps = np.stack([np.roll(image, (y, x), (1, 2)) for y in (0, 1) for x in (0, 1)], axis=1)
    inside = taps[3].any(axis=0)
    y, x = inside.nonzero()
    return (y - reach) * WORLD + x - reach, taps[:, :, inside].astype(np.float32)


def _paint(
    canvas: Floats,
    offsets: NDArray[np.intp],
    taps: Floats,
    path: NDArray[np.float64],
    seen: NDArray[np.intp],
) -> None:
    """Paint a leaf on frames ``seen`` of ``canvas`` [3, 1 + FRAMES + 1, WORLD, WORLD]."""
    whole = np.floor(path[seen]).astype(np.intp)
    y, x = (path[seen] - whole).astype(np.float32).T
    weights = np.stack([(1 - y) * (1 - x), (1 - y) * x, y * (1 - x), y * x], axis=1)
    *colors, alpha = weights @ taps
    # What sticks out of a row or frame lands in the unseen part of the one before or after.
    start = ((seen + 1) * WORLD + whole[:, 0]) * WORLD + whole[:, 1]
    index = start[:, None] + offsets
    for channel, color in zip(canvas.reshape(3, -1), colors, strict=True):
        channel[index] = channel[index] * (1 - alpha) + color
