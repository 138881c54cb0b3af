"""The robot over its background by the kernel, against the plain code, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest

from sibe.envs.backgrounds.background import compose
from sibe.envs.rendering.view import average_blocks
from sibe.kernels import layers

pytestmark = pytest.mark.skipif(not layers.available(), reason="no C compiler")


@pytest.mark.parametrize("side", [1, 2, 3, 7])
@pytest.mark.parametrize("flipped", [False, True])
def test_the_same_bytes_as_the_plain_code(side: int, flipped: bool) -> None:
    rng = np.random.default_rng(side)
    for height, width in ((84, 84), (42, 84), (84, 42)):
        robot = rng.integers(0, 256, (height, width, 4), np.uint8)
        # Mostly nothing or all of it, as in a picture, and colors at most as strong as coverage.
        robot[..., 3] = rng.choice([0, 0, 255, 128, 7], (height, width))
        robot[..., :3] = np.minimum(robot[..., :3], robot[..., 3:] + rng.integers(0, 3))
        robot = robot[::-1] if flipped else robot
        picture = rng.integers(0, 256, (height, width, 3), np.uint8)
        expected = average_blocks(compose(robot, picture), side)
        assert np.array_equal(layers.lay_over(robot, picture, side), expected)


def test_every_coverage_over_every_color() -> None:
    robot = np.zeros((256, 256, 4), np.uint8)
    robot[..., 3] = np.arange(256)[:, None]
    picture = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 256, 0).repeat(3, 2)
    for color in (0, 1, 200, 255):
        robot[..., :3] = color
        assert np.array_equal(layers.lay_over(robot, picture, 1), compose(robot, picture))


def test_pixels_that_do_not_lie_side_by_side() -> None:
    rng = np.random.default_rng(0)
    robot = rng.integers(0, 256, (8, 16, 4), np.uint8)[:, ::2]
    picture = rng.integers(0, 256, (8, 16, 3), np.uint8)[:, ::2]
    expected = average_blocks(compose(robot, picture), 2)
    assert np.array_equal(layers.lay_over(robot, picture, 2), expected)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="in blocks of"):
        layers.lay_over(np.zeros((4, 4, 4), np.uint8), np.zeros((4, 6, 3), np.uint8), 1)
    with pytest.raises(ValueError, match="in blocks of 3"):
        layers.lay_over(np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3), np.uint8), 3)


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_frames_side_by_side(number: int) -> None:
    rng = np.random.default_rng(number)
    frames = [rng.integers(0, 256, (9, 13, 3), np.uint8) for _ in range(number)]
    assert np.array_equal(layers.side_by_side(frames), np.concatenate(frames, axis=-1))


def test_frames_of_other_shapes_are_refused() -> None:
    frames = [np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)]
    with pytest.raises(ValueError, match="one size"):
        layers.side_by_side(frames)
    with pytest.raises(ValueError, match="one size"):
        layers.side_by_side([np.zeros((4, 8, 3), np.uint8)[:, ::2]])
