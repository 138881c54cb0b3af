"""Frames for people: the same scene at another size, and an episode that does not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from test_envs import actions

import sibe
from sibe.envs.rendering.view import average_blocks


def make(task: str, background: str, bank: Path) -> Any:
    clips = bank if background == "video" else None
    return sibe.make_env(task, background, size=40, stack=1, clips=clips)


@pytest.mark.parametrize("background", ["clean", "noise", "video"])
def test_a_larger_frame_shows_the_same_scene(background: str, bank: Path) -> None:
    env, alone = (make("walker_walk", background, bank) for _ in range(2))
    np.testing.assert_array_equal(env.reset(seed=3)[0], alone.reset(seed=3)[0])
    for action in actions(env, 3):
        large = env.unwrapped.enlarged(160, 160)
        assert large.shape == (160, 160, 3) and large.dtype == np.uint8
        apart = np.abs(average_blocks(large, 4).astype(int) - env.render())
        # Two renderers and two ways to scale, one scene; the bank's pictures are rough.
        assert apart.mean() < (16 if background == "video" else 4)
        # Not the small frame with each pixel as a block: there is more to see.
        blocks = env.render().repeat(4, axis=0).repeat(4, axis=1)
        assert (np.abs(blocks.astype(int) - large) > 16).mean() > 0.01
        # And looking does not change what follows.
        np.testing.assert_array_equal(env.step(action)[0], alone.step(action)[0])
    env.close()
    alone.close()


@pytest.mark.parametrize("side", [1, 2, 3, 16, 17])
def test_blocks_are_averaged_and_rounded(side: int) -> None:
    rng = np.random.default_rng(side)
    image = rng.integers(0, 256, (3 * side, 2 * side, 3), dtype=np.uint8)
    image[:side, :side] = 255
    blocks = image.reshape(3, side, 2, side, 3).astype(np.int64).sum((1, 3))
    expected = (blocks + side * side // 2) // (side * side)
    assert np.array_equal(average_blocks(image, side), expected)


def test_terrain_is_new_in_the_larger_frame_too(bank: Path) -> None:
    env = make("quadruped_escape", "clean", bank)
    env.reset(seed=0)
    env.unwrapped.enlarged(64, 64)
    env.reset(seed=1)
    fresh = make("quadruped_escape", "clean", bank)
    fresh.reset(seed=1)
    np.testing.assert_array_equal(env.unwrapped.enlarged(64, 64), fresh.unwrapped.enlarged(64, 64))


def test_an_env_that_draws_itself_is_resized_from_what_it_drew(bank: Path) -> None:
    env = make("Pendulum-v1", "clean", bank)
    env.reset(seed=0)
    drawn = Image.fromarray(env.unwrapped.gym_env.render())
    expected = np.asarray(drawn.resize((160, 160), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(env.unwrapped.enlarged(160, 160), expected)
