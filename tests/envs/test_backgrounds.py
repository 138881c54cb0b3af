"""What is painted behind the robot: noise, video, and how it is laid together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from scipy import stats

import sibe
from sibe.envs.backgrounds import background
from sibe.envs.backgrounds.background import (
    BACKGROUND_FRAME,
    NOISE_MEAN,
    NOISE_STD,
    Noise,
    RandomVideo,
    Start,
    VideoLoop,
    compose,
)
from sibe.envs.backgrounds.clips import ClipBank
from sibe.envs.tasks import VIDEOS


def expected_shares(wrap: bool) -> np.ndarray:
    """Return the probability of each byte, by scipy's normal distribution function."""
    if not wrap:  # rounded to the nearest byte; the ends take the tails
        edges = np.concatenate([[-np.inf], np.arange(255) + 0.5, [np.inf]])
        return np.diff(stats.norm.cdf(edges, NOISE_MEAN, NOISE_STD))
    # N(0, 255²) cut to a whole number towards zero, then modulo 256.
    shares = np.zeros(256)
    for whole in range(-3000, 3001):
        low, high = whole - (whole <= 0), whole + (whole >= 0)
        shares[whole % 256] += np.diff(stats.norm.cdf([low, high], 0, 255))[0]
    return shares


@pytest.mark.parametrize("wrap", [False, True])
def test_noise_has_the_distribution_it_claims(wrap: bool) -> None:
    noise, rng = Noise(84, 84, wrap=wrap), np.random.default_rng(0)
    frames = np.stack([noise.next(rng) for _ in range(100)])
    assert frames.shape == (100, 84, 84, 3)
    assert frames.dtype == np.uint8
    shares = expected_shares(wrap)
    counts = np.bincount(frames.ravel(), minlength=256)
    assert stats.chisquare(counts, shares * frames.size).pvalue > 1e-4
    mean = (np.arange(256) * shares).sum()
    std = np.sqrt(((np.arange(256) - mean) ** 2 * shares).sum())
    for channel in range(3):
        values = frames[..., channel].astype(float)
        assert values.mean() == pytest.approx(mean, abs=5 * std / np.sqrt(values.size))
        assert values.std() == pytest.approx(std, rel=0.01)


def test_the_default_noise_is_a_clipped_gaussian_and_the_wrapped_one_almost_uniform() -> None:
    gaussian, wrapped = expected_shares(False), expected_shares(True)
    assert gaussian[0] == pytest.approx(stats.norm.cdf(-127 / 64))
    assert wrapped[1:].max() / wrapped[1:].min() < 1.2


@pytest.mark.parametrize("wrap", [False, True])
def test_noise_is_fresh_in_every_pixel_channel_and_frame(wrap: bool) -> None:
    noise, rng = Noise(84, 84, wrap=wrap), np.random.default_rng(0)
    frames = np.stack([noise.next(rng) for _ in range(20)]).astype(float)
    frames -= frames.mean()
    pairs = {
        "frames": (frames[1:], frames[:-1]),
        "rows": (frames[:, 1:], frames[:, :-1]),
        "columns": (frames[:, :, 1:], frames[:, :, :-1]),
        "channels": (frames[..., 1:], frames[..., :-1]),
    }
    for name, (left, right) in pairs.items():
        correlation = (left * right).mean() / frames.var()
        assert abs(correlation) < 5 / np.sqrt(left.size), name


@pytest.mark.parametrize("split", ["train", "eval"])
def test_a_random_clip_plays_forwards_and_backwards(bank: Path, split: str) -> None:
    frames, rng = ClipBank.open(bank), np.random.default_rng(0)
    video = RandomVideo(bank, split, 84, 84)
    starts = set()
    for _ in range(60):
        video.reset(rng, Start())
        shown = [video.next(rng) for _ in range(20)]
        clips = [c for c in frames.clips(split) if c.start <= video.position < c.start + c.frames]
        (clip,) = clips
        # There and back again, without showing an end twice.
        there = list(range(clip.start, clip.start + clip.frames))
        cycle = there + there[-2:0:-1]
        starts_at = next(
            start
            for start in range(len(there))
            if all(
                (frames.frame(cycle[(start + t) % len(cycle)], 84, 84) == shown[t]).all()
                for t in range(20)
            )
        )
        starts.add((clip.source, starts_at))
    assert starts == {(c.source, s) for c in frames.clips(split) for s in range(c.frames)}


@pytest.mark.parametrize("split", ["train", "eval"])
@pytest.mark.parametrize("length", [7, 1000])
def test_the_loop_plays_on_across_episodes(bank: Path, split: str, length: int) -> None:
    frames, rng = ClipBank.open(bank), np.random.default_rng(0)
    clips = frames.clips(split)
    loop = [i for clip in clips for i in range(clip.start, clip.start + clip.frames)][:length]
    video = VideoLoop(bank, split, 84, 84, length)
    for shown in range(2 * len(loop) + 3):
        if shown % 5 == 0:  # a new episode
            video.reset(rng, Start(seeded=False))
        index = loop[shown % len(loop)]
        np.testing.assert_array_equal(video.next(rng), frames.frame(index, 84, 84))
        assert video.position == index


def test_a_seed_draws_the_place_in_the_loop_and_a_count_sets_it(bank: Path) -> None:
    frames = ClipBank.open(bank)
    env = sibe.make_env("cartpole_swingup", "video", clips=bank, stack=1)

    def first(**reset: Any) -> np.ndarray:
        env.reset(**reset)
        picture: np.ndarray = env.get_wrapper_attr("view").picture
        return picture

    assert len({first(seed=seed).tobytes() for seed in range(20)}) > 3
    np.testing.assert_array_equal(first(seed=4), first(seed=4))
    clips = frames.clips("train")
    length = sum(clip.frames for clip in clips)
    for shown in (0, length, 3 * length):  # whole rounds
        there = first(seed=9, options={BACKGROUND_FRAME: shown})
        np.testing.assert_array_equal(there, frames.frame(clips[0].start, 84, 84))
    # Without either it goes on where it was.
    first(seed=0, options={BACKGROUND_FRAME: 1})
    np.testing.assert_array_equal(first(), first(seed=0, options={BACKGROUND_FRAME: 2}))


@pytest.mark.parametrize("background", VIDEOS)
def test_train_and_eval_share_no_clip(bank: Path, background: str) -> None:
    seen: dict[str, set[bytes]] = {"train": set(), "eval": set()}
    for split, pictures in seen.items():
        env = sibe.make_env("cartpole_swingup", background, clips=bank, split=split)
        for seed in range(12):
            env.reset(seed=seed)
            pictures.add(env.get_wrapper_attr("view").picture.tobytes())
        env.close()
    assert len(seen["train"]) > 3
    assert len(seen["eval"]) > 3
    assert not seen["train"] & seen["eval"]


def test_an_env_shows_the_clip_behind_the_robot(bank: Path) -> None:
    env = sibe.make_env("cartpole_swingup", "video", clips=bank, stack=1)
    frame, _ = env.reset(seed=0)
    frames = ClipBank.open(bank)
    everything = [frames.frame(index, 84, 84) for index in range(len(frames))]
    for _ in range(15):
        picture = env.get_wrapper_attr("view").picture
        assert any((picture == known).all() for known in everything)
        unchanged = (frame == picture).all(axis=-1).mean()
        assert 0.9 < unchanged < 0.985  # all but cart, pole and rail
        frame, *_ = env.step(np.ones(1, np.float32))


def test_without_a_bank_the_generated_one_is_shown(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "synthetic_bank", lambda: ClipBank.open(bank))
    lives = []
    for clips in (None, bank):
        env = sibe.make_env("cartpole_swingup", "video", clips=clips)
        lives.append(env.reset(seed=0)[0])
    generated, given = lives
    np.testing.assert_array_equal(generated, given)


robots = hnp.arrays(np.uint8, (5, 4, 4)).map(
    lambda rgba: np.concatenate([np.minimum(rgba[..., :3], rgba[..., 3:]), rgba[..., 3:]], -1)
)


@given(robot=robots, picture=hnp.arrays(np.uint8, (5, 4, 3)))
def test_compose_is_the_over_operator(robot: np.ndarray, picture: np.ndarray) -> None:
    given_robot, given_picture = robot.copy(), picture.copy()
    frame = compose(robot, picture)
    alpha = robot[..., 3:] / 255
    assert (abs(frame - (robot[..., :3] + (1 - alpha) * picture)) <= 0.5 + 1e-9).all()
    np.testing.assert_array_equal(robot, given_robot)
    np.testing.assert_array_equal(picture, given_picture)


def test_compose_leaves_the_picture_and_the_robot_alone() -> None:
    env = sibe.make_env("walker_walk", "noise", stack=1)
    env.reset(seed=0)
    robot = env.get_wrapper_attr("view").renderer.rgba()
    for value in (0, 77, 255):
        frame = compose(robot, np.full((84, 84, 3), value, np.uint8))
        assert (frame[robot[..., 3] == 0] == value).all()
        np.testing.assert_array_equal(
            frame[robot[..., 3] == 255], robot[robot[..., 3] == 255][:, :3]
        )
    assert set(np.unique(robot[..., 3])) >= {0, 255}
