"""What is known of a robot: from frames that share a background, and from robots pasted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import ndimage

from sibe.foreground import learner as rounds
from sibe.foreground.crops import anywhere, around_change, crops_at
from sibe.foreground.learner import ForegroundLearner
from sibe.foreground.losses import differs, pair_loss, pasted_loss, rim
from sibe.foreground.network import GRAY, Foreground
from sibe.foreground.recolor import recolored
from sibe.foreground.recurrence import StoredFrames, recurring_pairs
from sibe.replay.replay import Replay

SIDE, ROBOT = 32, np.array((200, 60, 40), np.uint8)
Frames = npt.NDArray[np.uint8]


def scene(background: Frames, row: int, column: int) -> Frames:
    """Put a robot of 4×6 pixels before a background."""
    frame = background.copy()
    frame[row : row + 4, column : column + 6] = ROBOT
    return frame


def rooms(count: int, seed: int) -> Frames:
    """Smooth random pictures, the robot's color among theirs."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(count, SIDE, SIDE, 3))
    smooth = ndimage.gaussian_filter(noise, (0, 3, 3, 0))
    colors: Frames = (127 + 1000 * smooth).clip(0, 255).astype(np.uint8)
    return colors


def stored(frames: Frames, episode: list[int]) -> StoredFrames:
    return StoredFrames(
        np.arange(len(frames)),
        np.array(episode),
        frames[:, 2::4, 2::4, 1].reshape(len(frames), -1),
        lambda slots: frames[slots],
    )


def filled(learner: ForegroundLearner | None, episodes: int, length: int) -> Replay:
    """Every episode plays the same video, with the robot elsewhere."""
    look = None if learner is None else learner.masked
    replay = Replay(500, (SIDE, SIDE, 3), 1, stack=3, pad=2, look=look)
    rng, video = np.random.default_rng(1), rooms(length, seed=0)
    for _ in range(episodes):
        places = rng.integers(0, SIDE - 6, size=(length, 2))
        replay.start(scene(video[0], *places[0]))
        for step in range(1, length):
            frame = scene(video[step], *places[step])
            replay.add([0.0], 0.0, 1.0, frame, last=step == length - 1)
    return replay


@pytest.fixture(scope="module")
def learner() -> ForegroundLearner:
    """It has had its first training round."""
    made = ForegroundLearner(torch.Generator().manual_seed(3), torch.device("cpu"))
    assert made.learn(filled(None, episodes=4, length=40).stored_frames())
    return made


def test_the_pair_loss_is_the_likelihood_of_what_differs() -> None:
    rng = np.random.default_rng(0)
    p_a, p_b = rng.uniform(0.01, 0.99, size=(2, 3, 5, 7))
    different = rng.random((3, 5, 7)) < 0.5
    either = p_a * p_b + p_a * (1 - p_b) + (1 - p_a) * p_b
    likelihood = np.where(different, either, (1 - p_a) * (1 - p_b))
    odds_a, odds_b = (torch.from_numpy(np.log(p / (1 - p))) for p in (p_a, p_b))
    found = pair_loss(odds_a, odds_b, torch.from_numpy(different))
    assert found.item() == pytest.approx(-np.log(likelihood).mean(), rel=1e-9)


def test_the_pair_loss_is_finite_and_learns_at_the_extremes() -> None:
    odds = torch.tensor([[[-80.0, 80.0]]], requires_grad=True)
    for different in (torch.tensor([[[True, False]]]), torch.tensor([[[False, True]]])):
        loss = pair_loss(odds, odds, different)
        (slope,) = torch.autograd.grad(loss, odds)
        assert torch.isfinite(loss) and torch.isfinite(slope).all()


def test_the_pasted_loss_is_the_cross_entropy_of_sure_pixels() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, size=(2, 4, 4))
    robot, unsure = rng.random((2, 2, 4, 4)) < 0.4
    expected = -np.where(robot, np.log(p), np.log(1 - p)) * ~unsure
    odds = torch.from_numpy(np.log(p / (1 - p)))
    found = pasted_loss(odds, torch.from_numpy(robot), torch.from_numpy(unsure))
    assert found.item() == pytest.approx(expected.mean(), rel=1e-9)


def test_the_rim_is_what_a_dilation_adds() -> None:
    robot = np.random.default_rng(0).random((3, 9, 9)) < 0.1
    grown = ndimage.binary_dilation(robot, np.ones((1, 3, 3)))
    assert np.array_equal(rim(torch.from_numpy(robot)).numpy(), grown & ~robot)


def numbered(count: int, height: int, width: int) -> Frames:
    """Frames whose pixels tell the frame, the row and the column."""
    where: Frames = np.moveaxis(np.indices((count, height, width), np.uint8), 0, -1)
    return where


def test_a_part_is_cut_where_it_was_asked_for() -> None:
    parts = crops_at(numbered(2, 20, 30), np.array([3, 0]), np.array([5, 19]), 11)
    assert parts.shape == (2, 11, 11, 3)
    assert parts[0, 0, 0].tolist() == [0, 3, 5] and parts[1, 10, 10].tolist() == [1, 10, 29]


def test_parts_reach_from_edge_to_edge() -> None:
    rows, columns = anywhere(numbered(500, 20, 30), 12, np.random.default_rng(0))
    assert set(rows.tolist()) == set(range(9)) and set(columns.tolist()) == set(range(19))


def test_frames_that_are_not_square_teach_as_well() -> None:
    frames = np.repeat(rooms(20, seed=0)[:, :24], 2, axis=0)
    frames[::2, 3:7, 4:10] = frames[1::2, 15:19, 20:26] = ROBOT
    learner = ForegroundLearner(torch.Generator().manual_seed(0), torch.device("cpu"))
    assert learner.learn([stored(frames, [0, 1] * 20)])


def test_most_parts_show_what_differs_wherever_it_is() -> None:
    for place in ((0, 0), (0, 29), (19, 0), (19, 29), (9, 13)):
        one = numbered(400, 20, 30)
        other = one.copy()
        other[:, place[0], place[1]] += 1
        rows, columns = around_change(one, other, 9, np.random.default_rng(0))
        assert rows.min() >= 0 and rows.max() <= 11 and columns.min() >= 0 and columns.max() <= 21
        a, b = (crops_at(frames, rows, columns, 9) for frames in (one, other))
        assert (a != b).any((1, 2, 3)).mean() >= 0.75


def test_pixels_differ_by_any_channel_and_either_way() -> None:
    a = torch.tensor([[[0, 100, 255], [10, 10, 10]]], dtype=torch.uint8)
    b = torch.tensor([[[9, 100, 255], [2, 18, 10]]], dtype=torch.uint8)
    assert differs(a, b).tolist() == differs(b, a).tolist() == [[True, False]]


def test_pairs_have_one_background_and_come_from_two_episodes() -> None:
    backgrounds = rooms(12, seed=0)
    frames = np.concatenate([[scene(room, k, 2 * k) for room in backgrounds] for k in range(3)])
    # The third episode shows rooms that nothing else shows.
    frames[24:] = [scene(room, 20, 9) for room in rooms(12, seed=9)]
    one, other = recurring_pairs(
        stored(frames, [0] * 12 + [1] * 12 + [2] * 12), 60, np.random.default_rng(0)
    )
    assert 20 < len(one) < 60  # those of the third episode are left out
    for a, b in zip(one, other, strict=True):
        changed = (a != b).any(-1)
        assert 0 < changed.sum() <= 2 * 24


def test_the_pair_with_the_most_different_robots_is_taken() -> None:
    room = rooms(1, seed=0)[0]
    frames = np.stack([scene(room, 0, 0), scene(room, 0, 1), scene(room, 20, 20)])
    one, other = recurring_pairs(stored(frames, [0, 1, 2]), 20, np.random.default_rng(0))
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a, frames[2]) or np.array_equal(b, frames[2])


def test_noise_has_no_pairs_and_teaches_nothing() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, SIDE, SIDE, 3)).astype(np.uint8)
    frames = stored(noise, [0] * 20 + [1] * 20)
    one, other = recurring_pairs(frames, 30, np.random.default_rng(0))
    assert one.shape == other.shape == (0, SIDE, SIDE, 3)
    learner = ForegroundLearner(torch.Generator().manual_seed(0), torch.device("cpu"))
    before = [p.clone() for p in learner.network.parameters()]
    assert not learner.learn([frames]) and not learner.ready
    assert all(map(torch.equal, before, learner.network.parameters()))
    assert np.array_equal(learner.masked(noise[0]), noise[0])


def test_backgrounds_get_other_colors_many_of_them_the_robots() -> None:
    gray, color = np.full((200, SIDE, SIDE, 3), 127, np.uint8), ROBOT.astype(np.float64)
    seen = recolored(gray, color, np.random.default_rng(0)).numpy()
    assert seen.shape == gray.shape and seen.min() >= 0 and seen.max() <= 255
    near = (np.abs(seen - color).max(-1) < 20).any((1, 2))
    assert 0.3 < near.mean() < 0.6  # of two in three, some come less close
    spread = seen[~near].std(0)
    assert spread.min() > 40  # and the others are of any color


def test_backgrounds_keep_their_texture() -> None:
    frames = rooms(40, seed=0)
    seen = recolored(frames, ROBOT.astype(np.float64), np.random.default_rng(0)).numpy()
    edges = [np.abs(np.diff(images.astype(float), axis=1)).mean() for images in (frames, seen)]
    assert 0.3 < edges[1] / edges[0] < 1.2  # some of it is lost to 0 and 255
    assert (np.abs(seen - frames).mean((1, 2, 3)) > 10).mean() > 0.9


def test_a_round_teaches_to_see_the_robot_in_rooms_never_seen(
    learner: ForegroundLearner,
) -> None:
    rng, true, found, both = np.random.default_rng(5), 0, 0, 0
    for room in rooms(30, seed=77):
        row, column = rng.integers(0, SIDE - 6, size=2)
        frame = scene(room, row, column)
        robot = np.zeros((SIDE, SIDE), bool)
        robot[row : row + 4, column : column + 6] = True
        seen = learner.masked(frame)
        shown = (seen != GRAY).any(-1)
        assert np.array_equal(seen[shown], frame[shown])
        true, found, both = true + robot.sum(), found + shown.sum(), both + (robot & shown).sum()
    assert both / true > 0.8 and both / found > 0.5  # untrained: all is shown, 0.02


def test_states_are_seen_frame_by_frame(learner: ForegroundLearner) -> None:
    frames = np.stack([scene(room, 3, 5) for room in rooms(6, seed=4)])
    states = np.stack([np.concatenate(list(frames[k : k + 3]), -1) for k in (0, 3)])
    seen = learner.network.masked_states(torch.from_numpy(states)).numpy()
    alone = learner.network.masked(torch.from_numpy(frames)).numpy()
    assert np.array_equal(seen[1, ..., 3:6], alone[4]) and seen.shape == states.shape


def test_a_frame_is_computed_once_until_the_weights_change(
    learner: ForegroundLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Foreground(torch.Generator().manual_seed(0))
    network.load_state_dict(learner.network.state_dict())
    computed: list[int] = []
    plain = Foreground.forward

    def counted(self: Foreground, frames: torch.Tensor) -> torch.Tensor:
        computed.append(len(frames))
        return plain(self, frames)

    monkeypatch.setattr(Foreground, "forward", counted)
    frames = torch.from_numpy(np.stack([scene(room, 3, 5) for room in rooms(5, seed=4)]))
    first = network.masked(frames)
    first_alone = network.masked(frames[3:4])
    assert computed == [1] * 5
    assert torch.equal(first_alone[0], first[3])
    first_alone.zero_()  # what is returned belongs to the caller
    assert torch.equal(network.masked(frames), first)

    network.masked(frames.transpose(1, 2)[..., : SIDE // 2, :])  # other frames, also in shape
    assert len(computed) == 10
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2, fused=True)
    plain(network, frames).sum().backward()
    optimizer.step()
    changed = network.masked(frames)
    assert len(computed) == 15
    expected = torch.where(
        (torch.cat([plain(network, f) for f in frames.split(1)]) > 0)[..., None], frames, GRAY
    )
    assert torch.equal(changed, expected) and not torch.equal(changed, first)
    network.load_state_dict(learner.network.state_dict())
    assert torch.equal(network.masked(frames), first)


def test_few_frames_are_remembered(learner: ForegroundLearner) -> None:
    network = Foreground()
    network.load_state_dict(learner.network.state_dict())
    many = np.random.default_rng(0).integers(0, 256, (200, 8, 8, 3), np.uint8)
    network.masked(torch.from_numpy(many))
    assert len(network._recent) == 64


def test_the_replay_shows_what_is_looked_at_and_keeps_what_was_there(
    learner: ForegroundLearner,
) -> None:
    new = ForegroundLearner(torch.Generator().manual_seed(0), torch.device("cpu"))
    replay, plain = filled(new, 3, 20), filled(None, 3, 20)

    def drawn(source: Replay) -> torch.Tensor:
        images = source.sample(8, 2, np.random.default_rng(0), frames_per_state=3).obs
        assert isinstance(images, torch.Tensor)
        return images

    assert torch.equal(drawn(replay), drawn(plain))  # it has not learned anything
    new.network.load_state_dict(learner.network.state_dict())
    replay.look_again()
    assert (drawn(replay) == GRAY).float().mean() > 0.5
    (raw,), (kept,) = plain.stored_frames(), replay.stored_frames()
    assert np.array_equal(raw.read(raw.slots), kept.read(kept.slots))
    assert np.array_equal(raw.episode, np.repeat([0, 1, 2], 20))
    assert replay.nbytes == 2 * plain.nbytes - 500 * 4 * 3


def test_a_restored_replay_shows_the_same(learner: ForegroundLearner) -> None:
    replay, episodes = filled(learner, 3, 20), filled(None, 3, 20)
    files: dict[int, Any] = {
        span.number: episodes._episode(span) for span in episodes._ring.spans()
    }
    again = Replay(500, (SIDE, SIDE, 3), 1, stack=3, pad=2, look=learner.masked)
    again.restore(replay.state(), files.__getitem__)
    a, b = (source.sample(16, 2, np.random.default_rng(3)).obs for source in (replay, again))
    assert isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)


def test_rounds_come_less_and_less_often() -> None:
    due = [n for n in range(20_001) if ForegroundLearner.due(n)]
    assert due == [rounds.FIRST * times for times in (1, 2, 4, 8, 16)]


def test_a_round_is_a_function_of_the_seed(learner: ForegroundLearner) -> None:
    again = ForegroundLearner(torch.Generator().manual_seed(3), torch.device("cpu"))
    assert again.learn(filled(None, episodes=4, length=40).stored_frames())
    ours, theirs = learner.network.state_dict(), again.network.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_network_cannot_know_where_it_looks() -> None:
    network = Foreground(torch.Generator().manual_seed(0))
    frame = torch.zeros(1, 24, 24, 3)
    frame[0, 8, 9] = 255
    moved = frame.roll((3, 2), (1, 2))
    a, b = network(frame), network(moved)
    assert torch.allclose(a.roll((3, 2), (1, 2))[:, 9:15, 9:15], b[:, 9:15, 9:15], atol=1e-6)


def test_a_round_that_taught_nothing_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = filled(None, episodes=4, length=40).stored_frames()
    learner = ForegroundLearner(torch.Generator().manual_seed(3), torch.device("cpu"))
    before = {name: value.clone() for name, value in learner.network.state_dict().items()}
    train, tries, spoiled = ForegroundLearner._train, 0, 3

    def spoil(self: ForegroundLearner, *args: Any) -> None:
        nonlocal tries
        train(self, *args)
        tries += 1
        if tries <= spoiled:
            for parameter in self.network.parameters():
                torch.nn.init.constant_(parameter, -0.1)

    monkeypatch.setattr(rounds, "FIRST_STEPS", 300)
    monkeypatch.setattr(ForegroundLearner, "_train", spoil)
    assert not learner.learn(frames) and not learner.ready and tries == 3
    assert all(map(torch.equal, before.values(), learner.network.state_dict().values()))
    assert not learner.optimizer.state_dict()["state"]
    spoiled, tries = 1, 0
    assert learner.learn(frames) and learner.ready and tries == 2


@pytest.mark.parametrize("sure", [0.45, 0.9])
def test_a_network_that_is_nearly_sure_of_the_robot_does_not_count(sure: float) -> None:
    class Told(torch.nn.Module):
        """Knows where the robot is, with some probability."""

        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            robot = (frames == torch.from_numpy(ROBOT)).all(-1)
            return torch.where(robot, sure, 1e-4).logit()

    learner: Any = ForegroundLearner(torch.Generator().manual_seed(0), torch.device("cpu"))
    learner.network = Told()
    one, other = (
        np.stack([scene(room, *place) for room in rooms(8, seed=2)]) for place in ((2, 3), (20, 9))
    )
    assert learner._explains(one, other) == (sure > 0.5)
