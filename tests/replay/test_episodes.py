"""Episode files: what was written is read back, or the reader says that it cannot."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sibe.errors import UserError
from sibe.replay import Episode, Replay, episode_path, prune, read_episode, write_episode


def make_episode(steps: int = 5, seed: int = 0) -> Episode:
    rng = np.random.default_rng(seed)
    return Episode(
        rng.integers(0, 256, (steps + 1, 4, 6, 3), dtype=np.uint8),
        rng.normal(size=(steps, 2)).astype(np.float32),
        rng.normal(size=steps).astype(np.float32),
        np.array([1.0] * (steps - 1) + [0.0], np.float32),
    )


def same(a: Episode, b: Episode) -> bool:
    pairs: Iterable[tuple[np.ndarray, np.ndarray]] = zip(a, b, strict=True)
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


def test_round_trip(tmp_path: Path) -> None:
    episode = make_episode()
    path = write_episode(tmp_path, 12, episode)
    assert path == tmp_path / "episode_000012.npz" == episode_path(tmp_path, 12)
    assert same(read_episode(path), episode)
    assert os.listdir(tmp_path) == [path.name]


def test_a_file_is_plain_npz_and_its_bytes_depend_on_the_episode_alone(tmp_path: Path) -> None:
    episode = make_episode()
    first = write_episode(tmp_path, 1, episode)
    second = write_episode(tmp_path, 2, episode)
    assert first.read_bytes() == second.read_bytes()
    with np.load(first, allow_pickle=False) as file:
        assert same(Episode(**{name: file[name] for name in Episode._fields}), episode)
    assert first.stat().st_size > episode.frames.nbytes  # not compressed


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_changed_byte_is_harmless_or_noticed(tmp_path: Path, data: st.DataObject) -> None:
    episode = make_episode(3)
    path = write_episode(tmp_path, 0, episode)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        assert same(read_episode(path), episode)
    except UserError as error:
        assert str(path) in str(error)
        assert "damaged" in str(error)


def test_every_changed_pixel_is_noticed(tmp_path: Path) -> None:
    episode = make_episode(3)
    path = write_episode(tmp_path, 0, episode)
    content = path.read_bytes()
    begin = content.index(episode.frames.tobytes())
    for offset in range(0, episode.frames.nbytes, 17):
        damaged = bytearray(content)
        damaged[begin + offset] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="damaged"):
            read_episode(path)


def test_a_cut_file_is_noticed_wherever_it_is_cut(tmp_path: Path) -> None:
    path = write_episode(tmp_path, 0, make_episode(3))
    content = path.read_bytes()
    for size in range(0, len(content), 13):
        path.write_bytes(content[:size])
        with pytest.raises(UserError, match=r"episode_000000\.npz is damaged"):
            read_episode(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"episode_000003\.npz is missing"):
        read_episode(episode_path(tmp_path, 3))


@pytest.mark.parametrize(
    "wrong",
    [
        {"frames": np.zeros((5, 4, 6, 3), np.uint8)},
        {"frames": np.zeros((6, 4, 6, 3), np.int8)},
        {"frames": np.zeros((6, 4, 18), np.uint8)},
        {"action": np.zeros((4, 2), np.float32)},
        {"action": np.zeros((5, 2), np.float64)},
        {"action": np.zeros(5, np.float32)},
        {"reward": np.zeros((5, 1), np.float32)},
        {"discount": np.zeros(6, np.float32)},
        {"reward": np.array([None] * 5)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, wrong: dict[str, np.ndarray]) -> None:
    path = write_episode(tmp_path, 0, make_episode()._replace(**wrong))
    with pytest.raises(UserError, match="damaged"):
        read_episode(path)


def test_a_failed_write_leaves_nothing_or_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_episode(seed=1)
    write_episode(tmp_path, 1, old)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            for number in (1, 2):
                with pytest.raises(UserError, match="No space left on device"):
                    write_episode(tmp_path, number, make_episode(seed=2))
    assert os.listdir(tmp_path) == ["episode_000001.npz"]
    assert same(read_episode(episode_path(tmp_path, 1)), old)


def test_a_killed_write_leaves_only_a_stray_file_that_prune_takes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(os, "replace", kill)
    with pytest.raises(Killed):
        write_episode(tmp_path, 4, make_episode())
    assert not episode_path(tmp_path, 4).exists()
    assert len(os.listdir(tmp_path)) == 1
    prune(tmp_path, {4})
    assert os.listdir(tmp_path) == []


def test_content_is_on_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int | str] = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(descriptor: int) -> None:
        calls.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    def spy_replace(source: Path, target: Path) -> None:
        calls.append("named")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    path = write_episode(tmp_path, 0, make_episode())
    assert calls[:2] == [path.stat().st_size, "named"]
    assert len(calls) == 3  # and the folder, or a power cut could take the name back


def test_a_folder_that_is_not_there_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write"):
        write_episode(tmp_path / "nowhere", 0, make_episode())


def test_prune_keeps_what_is_asked_and_what_is_not_its_own(tmp_path: Path) -> None:
    for number in (0, 7, 8, 1_234_567):
        write_episode(tmp_path, number, make_episode())
    for name in ("notes.txt", "episode_best.npz", "other.tmp", "episode_000007.npz.tmp"):
        (tmp_path / name).touch()
    prune(tmp_path, {7, 1_234_567, 99})
    assert sorted(os.listdir(tmp_path)) == [
        "episode_000007.npz",
        "episode_1234567.npz",
        "episode_best.npz",
        "notes.txt",
        "other.tmp",
    ]


def test_a_replay_comes_back_from_its_folder(tmp_path: Path) -> None:
    """As the training loop does it: write what finishes, prune, save the state, read again."""
    rng = np.random.default_rng(0)
    replay = Replay(60, (4, 6, 3), 2, stack=3)

    def run(target: Replay, steps: int, rng: np.random.Generator, *, write: bool) -> None:
        for i in range(steps):
            frame = rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)
            if i % 14 == 0:
                target.start(frame)
                continue
            episode = target.add(rng.normal(size=2), 1.5, 1.0, frame, last=i % 14 == 13)
            if episode is not None and write:
                write_episode(tmp_path, max(target.state()["episodes"]), episode)

    run(replay, 14 * 20 + 5, rng, write=True)
    prune(tmp_path, replay.needed_episodes())
    assert len(os.listdir(tmp_path)) == len(replay.needed_episodes()) == 4
    torch.save(replay.state(), tmp_path / "state.pt")

    again = Replay(60, (4, 6, 3), 2, stack=3)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    again.restore(state, lambda number: read_episode(episode_path(tmp_path, number)))
    a = replay.sample(50, 3, np.random.default_rng(1))
    b = again.sample(50, 3, np.random.default_rng(1))
    assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))
