"""The replay of several sensors: each reading once, all of one moment together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sibe.errors import UserError
from sibe.replay import Chunk, Episode, Replay, read_episode, write_episode

SHAPES = {"pixels_0": (4, 5, 3), "pixels_1": (4, 5, 3), "state": (2,)}
STACK = 3


def moment(number: int) -> dict[str, np.ndarray]:
    """Readings that tell their number."""
    return {
        "pixels_0": np.full((4, 5, 3), number, np.uint8),
        "pixels_1": np.full((4, 5, 3), 100 + number, np.uint8),
        "state": np.array([number, -number], np.float32),
    }


def filled(replay: Replay, lengths: tuple[int, ...] = (6, 7)) -> dict[int, Episode]:
    episodes, number = {}, 0
    for index, length in enumerate(lengths):
        replay.start(moment(number))
        for step in range(1, length + 1):
            number += 1
            last = step == length
            done = replay.add([number], number, 1.0, moment(number), last=last)
            if done is not None:
                episodes[index] = done
        number += 1
    return episodes


def make(capacity: int = 40, shapes: Any = None) -> Replay:
    return Replay(capacity, SHAPES if shapes is None else shapes, 1, stack=STACK, pad=1)


def same(one: Chunk, two: Chunk) -> bool:
    pairs = [(one.obs[name], two.obs[name]) for name in one.obs]
    pairs += list(zip(one[1:4], two[1:4], strict=True))
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("frames_per_state", [1, STACK])
def test_the_sensors_of_a_chunk_are_of_one_moment(frames_per_state: int) -> None:
    replay = make()
    filled(replay)
    chunk = replay.sample(16, 2, np.random.default_rng(0), frames_per_state=frames_per_state)
    for first, end in ((0, 2), (1, 3), (0, 3)):
        for part in (chunk.online(first, end), chunk.target(first, end)):
            numbers = part["state"][..., 0]
            assert numbers.shape == (end - first, 16)
            assert torch.equal(part["state"][..., 1], -numbers)
            for camera in (0, 1):
                frames = part[f"pixels_{camera}"].float() - 100 * camera
                newest = frames[-len(numbers) :] if frames_per_state > 1 else frames
                assert torch.equal(newest[..., 0, 0, -1], numbers)
    assert torch.equal(chunk.reward, chunk.obs["state"][1:, :, 0])


def test_a_chunk_by_sensor_moves_to_a_device_whole() -> None:
    replay = make()
    filled(replay)
    chunk = replay.sample(4, 2, np.random.default_rng(0), frames_per_state=STACK)
    moved = chunk.to(torch.device("cpu"))
    assert same(chunk, moved)
    assert moved.obs_target is not None and moved.obs_target.keys() == SHAPES.keys()


def test_state_alone_needs_no_pictures() -> None:
    replay = make(shapes={"state": (2,)})
    replay.start({"state": np.zeros(2, np.float32)})
    for step in range(1, 6):
        replay.add([0.0], 0.0, 1.0, {"state": moment(step)["state"]}, last=step == 5)
    chunk = replay.sample(8, 2, np.random.default_rng(0))
    assert chunk.obs.keys() == {"state"} and chunk.obs["state"].shape == (3, 8, 2)
    assert (chunk.obs["state"].diff(dim=0)[..., 0] == 1).all()


def test_episodes_come_back_from_disk_and_the_replay_goes_on(tmp_path: Path) -> None:
    whole, again = make(capacity=11), make(capacity=11)  # smaller than the run: the ring wraps
    for number, episode in filled(whole).items():
        read = read_episode(write_episode(tmp_path, number, episode))
        assert read.frames.keys() == episode.frames.keys()
        for name, readings in episode.frames.items():
            np.testing.assert_array_equal(read.frames[name], readings)
            assert read.frames[name].dtype == readings.dtype
    state = whole.state()
    again.restore(state, lambda n: read_episode(tmp_path / f"episode_{n:06d}.npz"))
    one, two = (r.sample(32, 2, np.random.default_rng(1)) for r in (whole, again))
    assert same(one, two)


def test_a_running_episode_is_in_the_state() -> None:
    whole, again = make(), make()
    whole.start(moment(0))
    for number in range(1, 6):
        whole.add([number], 0.0, 1.0, moment(number), last=False)
    again.restore(whole.state(), lambda n: pytest.fail("nothing is on disk"))
    assert same(*(r.sample(8, 2, np.random.default_rng(1)) for r in (whole, again)))


def test_other_sensors_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="resume with the same settings") as caught:
        make(shapes={"state": (2,)}).restore(make().state(), lambda n: pytest.fail("no"))
    assert "state" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"a reading of state is float32 \(2,\), not float64"):
        make().start({**moment(0), "state": np.zeros(2)})


def test_groups_look_alike_to_the_first_camera() -> None:
    replay = Replay(40, SHAPES, 1, stack=STACK, pad=1, groups=True)
    filled(replay)
    chunk = replay.sample(8, 2, np.random.default_rng(0), group=2)
    numbers = chunk.obs["state"][0, :, 0].reshape(4, 2)
    # Of two episodes, 0 … 6 and 7 … 14: the nearest of the other one is at its end.
    for one, other in numbers.tolist():
        assert other == (7 if one < 7 else 4)  # the last start of a chunk of two


def test_bytes_are_known_up_front() -> None:
    assert make(500).nbytes == Replay.nbytes_for(500, SHAPES, 1, 1)
