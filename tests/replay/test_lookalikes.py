"""Groups of chunks that look alike: against brute force, and through the replay."""

from __future__ import annotations

import numpy as np
import pytest

from sibe.agents.sac.entry import check
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig, SACConfig
from sibe.errors import UserError
from sibe.replay.episodes import Episode
from sibe.replay.lookalikes import Thumbnails, grouped
from sibe.replay.replay import Replay
from sibe.replay.ring import Drawn

SHAPE = (12, 18, 3)


def test_a_thumbnail_is_the_mean_of_each_cell() -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (5, 13, 18, 3), dtype=np.uint8)  # a row that fills no cell
    thumbnails = Thumbnails(5, frames.shape[1:])
    for slot, frame in enumerate(frames):
        thumbnails.put(slot, frame)
    means = [
        [
            frame[2 * i : 2 * i + 2, 3 * j : 3 * j + 3].mean((0, 1))
            for i in range(6)
            for j in range(6)
        ]
        for frame in frames
    ]
    points = np.array(means).reshape(5, -1)
    exact = ((points[:2, None] - points[None]) ** 2).sum(-1)
    found = thumbnails.distances(np.arange(2), np.arange(5))
    # Up to a constant of each row.
    np.testing.assert_allclose(found - found[:, :1], exact - exact[:, :1], rtol=1e-3, atol=1)


def test_groups_against_brute_force() -> None:
    rng = np.random.default_rng(1)
    first = rng.integers(0, 6, 40) * 100
    candidates = Drawn(first + rng.integers(0, 90, 40), first, first + 95)
    distances = rng.random((3, 40)).astype(np.float32)
    size = 4
    start, of, end = grouped(candidates, distances, size, rng)
    assert np.array_equal(end, of + 95)
    for row in range(3):
        group = start[size * row : size * (row + 1)], of[size * row : size * (row + 1)]
        assert (group[0][0], group[1][0]) == (candidates.start[row], first[row])
        best: dict[int, tuple[float, int]] = {}
        for n in range(40):
            if first[n] != first[row]:
                best[first[n]] = min(best.get(first[n], (9.0, 0)), (float(distances[row, n]), n))
        nearest = [n for _, n in sorted(best.values())[: size - 1]]
        assert group[0][1:].tolist() == candidates.start[nearest].tolist()


def test_too_few_episodes_are_filled_up() -> None:
    candidates = Drawn(np.arange(10), np.zeros(10, np.int64), np.full(10, 12))
    distances = np.zeros((2, 10), np.float32)
    start, first, _ = grouped(candidates, distances, 4, np.random.default_rng(0))
    assert start[[0, 4]].tolist() == [0, 1] and len(start) == 8 and not first.any()
    assert set(start.tolist()) <= set(range(10))


def fill(replay: Replay, episodes: int) -> list[Episode]:
    """Play a loop of 8 background colors on across episodes of 5 steps; one pixel is the robot."""
    rng = np.random.default_rng(2)
    done = []
    shown = 0

    def frame() -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        nonlocal shown
        image = np.full(SHAPE, 30 * (shown % 8), np.uint8)
        image[rng.integers(12), rng.integers(18)] = 255
        shown += 1
        return image

    for _ in range(episodes):
        replay.start(frame())
        for step in range(5):
            ended = replay.add([0.5], 1.0, 1.0, frame(), last=step == 4)
        assert ended is not None
        done.append(ended)
    return done


def test_a_group_has_one_background_and_comes_back_after_a_resume() -> None:
    replay = Replay(400, SHAPE, 1, stack=1, pad=0, groups=True)
    episodes = fill(replay, 40)
    chunk = replay.sample(8, 2, np.random.default_rng(3), group=4)
    background = np.median(chunk.obs[0].numpy().reshape(8, -1), axis=1)
    assert (background.reshape(2, 4) == background.reshape(2, 4)[:, :1]).all()
    images = chunk.obs[0].numpy().reshape(8, -1)
    assert len(np.unique(images, axis=0)) == 8  # the robot is elsewhere in each

    again = Replay(400, SHAPE, 1, stack=1, pad=0, groups=True)
    again.restore(replay.state(), lambda number: episodes[number])
    same = again.sample(8, 2, np.random.default_rng(3), group=4)
    assert all((a == b).all() for a, b in zip(chunk[:4], same[:4], strict=True))


def test_a_minibatch_has_whole_groups() -> None:
    config = preset_config("cpu", task="cartpole_swingup", method="sibe", background="video")
    assert sampling(config).group == config.sac.group
    with pytest.raises(UserError, match=r"--sac\.batch must be a multiple of --sac\.group, not 64"):
        check(RunConfig(sac=SACConfig(batch=64, group=5)))
