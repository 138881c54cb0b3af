"""The replay against a list of frames in plain Python, which knows nothing of rings.

Every frame carries its episode and its time in its pixels, so a sampled chunk tells where it is
from; the model says which chunks exist and what each must hold.
"""

from __future__ import annotations

import gc
import io
import tracemalloc
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from sibe.errors import UserError
from sibe.replay import Chunk, Episode, Replay

Shape = tuple[int, int, int]
Key = tuple[int, int]  # episode and time of a frame

SHAPE = (2, 3, 3)
ACTIONS = 2
PROFILE = settings(max_examples=60, deadline=None, derandomize=True)


class Step(NamedTuple):
    """One call of start (action is None) or add."""

    episode: int
    time: int
    action: tuple[float, float] | None
    reward: float
    discount: float
    last: bool


Needs = tuple[list[list[Key]], list[Step]]  # the frames of each state, the steps between them


def picture(episode: int, time: int, shape: Shape = SHAPE) -> np.ndarray:
    frame = np.random.default_rng((episode, time)).integers(0, 256, shape, dtype=np.uint8)
    frame[0, 0, 0] = episode
    frame[0, 1, 0] = time
    return frame


def script(lengths: list[int], terminated: list[bool], *, finish: bool = True) -> list[Step]:
    steps = []
    for episode, (length, true_end) in enumerate(zip(lengths, terminated, strict=True)):
        steps.append(Step(episode, 0, None, 0.0, 1.0, False))
        for time in range(1, length + 1):
            ended = time == length and (finish or episode < len(lengths) - 1)
            discount = 0.0 if ended and true_end else 1.0
            action = (episode + 0.25, time - 0.5)
            steps.append(Step(episode, time, action, 10 * episode + time / 8, discount, ended))
    return steps


def frames_written(replay: Replay) -> int:
    written: int = replay.state()["frames_written"]
    return written


def newest_episode(replay: Replay) -> int:
    """Return its number, counted from 0; -1 before any."""
    return max(replay.state()["episodes"], default=-1)


def play(replay: Replay, steps: list[Step], shape: Shape = SHAPE) -> dict[int, Episode]:
    """Feed ``steps`` and return the finished episodes by number."""
    done = {}
    for step in steps:
        frame = picture(step.episode, step.time, shape)
        if step.action is None:
            replay.start(frame)
            continue
        episode = replay.add(step.action, step.reward, step.discount, frame, last=step.last)
        assert (episode is not None) == step.last
        if episode is not None:
            done[newest_episode(replay)] = episode
    return done


def model(
    steps: list[Step], capacity: int, stack: int, length: int, least: int | None = None
) -> dict[Key, Needs]:
    """Every chunk that may be drawn: (episode, time) of its start -> the steps it needs."""
    kept = steps[-capacity:]
    frames = {(s.episode, s.time) for s in kept}
    chunks = {}
    for start in range(len(kept)):
        episode, time = kept[start].episode, kept[start].time
        taken = [s for s in kept[start + 1 : start + 1 + length] if s.episode == episode]
        missing = length - len(taken)
        ended = bool(taken) and taken[-1].last and taken[-1].discount == 0
        enough = least is not None and (len(taken) >= least or time == 0)
        whole = missing == 0 or (ended and enough)
        taken += [Step(episode, -1, (0.0, 0.0), 0.0, 0.0, False)] * missing
        newest = time + length - missing
        seen = [
            [(episode, min(max(0, time + i - back), newest)) for back in reversed(range(stack))]
            for i in range(length + 1)
        ]
        if whole and all(key in frames for state in seen for key in state):
            chunks[episode, time] = (seen, taken)
    return chunks


def origin(chunk: Chunk, b: int, channels: int = SHAPE[2]) -> tuple[int, int]:
    newest = chunk.obs[0, b, ..., -channels:]
    return int(newest[0, 0, 0]), int(newest[0, 1, 0])


def check_chunk(chunk: Chunk, b: int, expected: Needs, shape: Shape) -> None:
    seen, taken = expected
    obs = [
        np.concatenate([picture(episode, time, shape) for episode, time in state], axis=-1)
        for state in seen
    ]
    assert np.array_equal(chunk.obs[:, b].numpy(), np.stack(obs))
    assert chunk.action[:, b].tolist() == [list(s.action or ()) for s in taken]
    assert chunk.reward[:, b].tolist() == [s.reward for s in taken]
    assert chunk.discount[:, b].tolist() == [s.discount for s in taken]


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    episodes = draw(st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=7))
    lengths, terminated = zip(*episodes, strict=True)
    steps = script(list(lengths), list(terminated), finish=draw(st.booleans()))
    return steps[: len(steps) - draw(st.integers(0, min(3, len(steps) - 1)))]


@PROFILE
@given(
    steps=histories(),
    capacity=st.integers(2, 30),
    stack=st.integers(1, 4),
    length=st.integers(1, 5),
    channels=st.sampled_from([1, 3, 4, 5, 9]),
    share=st.floats(0, 1, exclude_max=True),
)
def test_samples_are_exactly_the_valid_chunks(
    steps: list[Step], capacity: int, stack: int, length: int, channels: int, share: float
) -> None:
    least = int(share * (length + 1)) or None
    shape = (2, 3, channels)
    replay = Replay(capacity, shape, ACTIONS, stack=stack, pad=0)
    play(replay, steps, shape)
    valid = model(steps, capacity, stack, length, least)
    assert replay.can_sample(length, least) == bool(valid)
    transitions = model(steps, capacity, 1, 1)
    assert len(replay) == len(transitions)
    assert frames_written(replay) == len(steps)
    rng = np.random.default_rng(len(steps))
    if not valid:
        with pytest.raises(UserError, match=f"{length} consecutive transitions"):
            replay.sample(1, length, rng, least=least)
        return
    chunk = replay.sample(30 * len(valid), length, rng, least=least)
    assert chunk.obs.shape == (length + 1, 30 * len(valid), 2, 3, channels * stack)
    drawn = [origin(chunk, b, channels) for b in range(30 * len(valid))]
    assert set(drawn) == set(valid)  # a start is missed with probability exp(-30)
    for start, b in {start: b for b, start in enumerate(drawn)}.items():
        check_chunk(chunk, b, valid[start], shape)


@pytest.mark.parametrize("least", [None, 1, 2])
def test_starts_are_uniform_also_after_the_ring_has_wrapped(least: int | None) -> None:
    steps = script([9, 1, 14, 3, 8, 2, 11], [True, False] * 3 + [True], finish=False)
    replay = Replay(40, SHAPE, ACTIONS, stack=3, pad=0)
    play(replay, steps)
    valid = model(steps, 40, 3, 2, least)
    chunk = replay.sample(200 * len(valid), 2, np.random.default_rng(0), least=least)
    counts = Counter(origin(chunk, b) for b in range(chunk.obs.shape[1]))
    assert counts.keys() == valid.keys()
    assert len(valid) > 20 and len(valid) == len(model(steps, 40, 3, 2)) + 2 * (least == 1)
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_draws_of_one_batch_are_independent() -> None:
    replay = Replay(9, SHAPE, ACTIONS, stack=1, pad=0)
    play(replay, script([6], [False]))
    rng = np.random.default_rng(0)
    table = np.zeros((6, 6), int)
    for _ in range(1500):
        chunk = replay.sample(2, 1, rng)
        table[origin(chunk, 0)[1], origin(chunk, 1)[1]] += 1
    assert chi2_contingency(table).pvalue > 1e-3
    assert table.trace() > 0  # with replacement


def test_a_termination_is_told_from_a_time_limit() -> None:
    replay = Replay(50, SHAPE, ACTIONS, stack=2, pad=0)
    play(replay, script([4, 4], [True, False]))
    chunk = replay.sample(300, 1, np.random.default_rng(0))
    last = {origin(chunk, b): float(chunk.discount[0, b]) for b in range(300)}
    assert last[0, 3] == 0
    assert last[1, 3] == 1
    assert sum(value == 0 for value in last.values()) == 1


def test_one_episode_may_be_longer_than_the_ring() -> None:
    replay = Replay(8, SHAPE, ACTIONS, stack=3, pad=0)
    done = play(replay, script([50], [True]))
    assert len(replay) == 7
    chunk = replay.sample(400, 2, np.random.default_rng(0))
    # Frames 43..50 are left; a start needs two before it and two after it.
    assert {origin(chunk, b)[1] for b in range(400)} == {45, 46, 47, 48}
    assert done[0].frames[:, 0, 1, 0].tolist() == list(range(43, 51))
    assert done[0].reward.tolist() == [time / 8 for time in range(44, 51)]


def test_the_finished_episode_holds_all_its_frames() -> None:
    replay = Replay(10, SHAPE, ACTIONS, stack=3, pad=4)
    done = play(replay, script([6, 7], [True, False]))
    assert done.keys() == {0, 1}
    for number, episode in done.items():
        expected = [picture(number, t) for t in range(len(episode.frames))]
        assert np.array_equal(episode.frames, np.stack(expected))
        assert len(episode.frames) == len(episode.action) + 1 == 7 + number
        assert episode.action.tolist() == [[number + 0.25, t + 0.5] for t in range(6 + number)]
        assert episode.reward.tolist() == [10 * number + (t + 1) / 8 for t in range(6 + number)]
        assert episode.discount.tolist() == [1.0] * (5 + number) + [float(number)]


def naive_shift(frame: np.ndarray, pad: int, dy: int, dx: int) -> np.ndarray:
    padded = np.pad(frame, ((pad, pad), (pad, pad), (0, 0)), mode="edge")
    out = np.empty_like(frame)
    for y in range(frame.shape[0]):
        for x in range(frame.shape[1]):
            out[y, x] = padded[y + pad + dy, x + pad + dx]
    return out


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 7, 9])
@pytest.mark.parametrize(("pad", "stack"), [(1, 1), (2, 3), (4, 2)])
def test_a_shift_is_a_crop_of_the_edge_padded_frame(channels: int, pad: int, stack: int) -> None:
    shape = (5, 6, channels)
    replay = Replay(20, shape, ACTIONS, stack=stack, pad=pad)
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (5, *shape), dtype=np.uint8)
    replay.start(frames[0])
    for frame in frames[1:]:
        replay.add((0, 0), 0.0, 1.0, frame, last=False)
    offsets = [(dy, dx) for dy in range(-pad, pad + 1) for dx in range(-pad, pad + 1)]
    stacks = {
        np.concatenate(
            [naive_shift(frames[max(0, t - k)], pad, dy, dx) for k in reversed(range(stack))], -1
        ).tobytes(): (t, dy, dx)
        for t in range(5)
        for dy, dx in offsets
    }
    chunk = replay.sample(16 * len(offsets), 2, rng)
    found = [[stacks[obs.tobytes()] for obs in batch] for batch in chunk.obs.numpy()]
    for first, second, third in zip(*found, strict=True):
        assert (second[0], third[0]) == (first[0] + 1, first[0] + 2)
    assert {place[1:] for batch in found for place in batch} == set(offsets)


def test_shifts_are_uniform_and_independent_between_states() -> None:
    replay = Replay(40, (16, 16, 1), ACTIONS, stack=2, pad=4)
    frame = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)  # a pixel tells its place
    replay.start(frame)
    for _ in range(30):
        replay.add((0, 0), 0.0, 1.0, frame, last=False)
    obs = replay.sample(4000, 1, np.random.default_rng(0)).obs.numpy()
    assert np.array_equal(obs[..., 0], obs[..., 1])  # the frames of a stack move together
    shift = np.stack([obs[:, :, 8, 8, 0] // 16, obs[:, :, 8, 8, 0] % 16]).astype(int) - 4
    assert shift.min() == 0
    assert shift.max() == 8
    places = np.bincount((shift[0] * 9 + shift[1]).ravel(), minlength=81)
    assert chisquare(places).pvalue > 1e-3
    pairs = [
        (shift[0, 0], shift[0, 1]),  # dy of a state and of the next
        (shift[1, 0], shift[1, 1]),
        (shift[0, 0], shift[1, 0]),  # dy and dx of one state
        (shift[0, 0, :-1], shift[0, 0, 1:]),  # neighbors in the batch
    ]
    for a, b in pairs:
        table = np.zeros((9, 9), int)
        np.add.at(table, (a, b), 1)
        assert chi2_contingency(table).pvalue > 1e-3


def test_a_stack_is_right_at_full_size_and_over_many_groups() -> None:
    """Large enough that the scratch array is filled several times and not evenly."""
    shape = (64, 64, 3)
    replay = Replay(30, shape, ACTIONS, stack=3, pad=0)
    steps = script([20, 25], [True, False])
    play(replay, steps, shape)
    valid = model(steps, 30, 3, 2)
    chunk = replay.sample(37, 2, np.random.default_rng(0))
    for b in range(37):
        check_chunk(chunk, b, valid[origin(chunk, b)], shape)


def test_the_chunk_has_the_promised_types() -> None:
    replay = Replay(30, SHAPE, ACTIONS, stack=3)
    play(replay, script([9], [True]))
    chunk = replay.sample(5, 2, np.random.default_rng(0))
    assert chunk.obs.dtype == torch.uint8
    assert all(t.is_contiguous() for t in chunk[:4])
    assert [t.dtype for t in chunk[1:4]] == [torch.float32] * 3
    assert [tuple(t.shape) for t in chunk[:4]] == [(3, 5, 2, 3, 9), (2, 5, ACTIONS), (2, 5), (2, 5)]


def test_one_rng_gives_one_sample_whatever_was_drawn_before() -> None:
    steps = script([9, 20], [True, False])
    a = Replay(25, SHAPE, ACTIONS, stack=3)
    b = Replay(25, SHAPE, ACTIONS, stack=3)
    play(a, steps)
    play(b, steps)
    a.sample(7, 3, np.random.default_rng(1))
    first = a.sample(11, 2, np.random.default_rng(5))
    second = b.sample(11, 2, np.random.default_rng(5))
    other = b.sample(11, 2, np.random.default_rng(6))
    assert all(torch.equal(x, y) for x, y in zip(first[:4], second[:4], strict=True))
    assert not torch.equal(first.obs, other.obs)


def test_chunks_are_left_alone_for_as_long_as_anything_refers_to_them() -> None:
    replay = Replay(60, SHAPE, ACTIONS, stack=3)
    play(replay, script([50], [False]))
    rng = np.random.default_rng(0)
    held = []
    for i in range(12):
        chunk = replay.sample(6, 2, rng)
        # In turn: the chunk, a view of it, a NumPy array on it, a slice of a view.
        keep = [chunk.obs, chunk.obs[1:], chunk.obs.numpy()[0], chunk.obs.view(-1)[5:7]][i % 4]
        held.append((keep, torch.as_tensor(keep).clone(), chunk.reward, chunk.reward.clone()))
    del chunk
    for keep, copy, reward, reward_copy in held:
        assert torch.equal(torch.as_tensor(keep), copy)
        assert torch.equal(reward, reward_copy)


def test_memory_of_a_dropped_chunk_is_used_again() -> None:
    shape = (32, 32, 3)
    replay = Replay(60, shape, ACTIONS, stack=3)
    play(replay, script([50], [False]), shape)
    rng = np.random.default_rng(0)
    for _ in range(2):
        chunk = replay.sample(100, 2, rng)  # the last chunk is still bound during the call
    tracemalloc.start()
    chunk = replay.sample(100, 2, rng)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < chunk.obs.nbytes / 2


def resume(replay: Replay, done: dict[int, Episode], *args: Any, **kwargs: Any) -> Replay:
    """A new replay from the saved state, with only the episodes that are said to be needed."""
    file = io.BytesIO()
    torch.save(replay.state(), file)
    file.seek(0)
    files = {number: done[number] for number in replay.needed_episodes()}
    again = Replay(*args, **kwargs)
    again.restore(torch.load(file, weights_only=True), files.__getitem__)
    return again


def assert_same(a: Replay, b: Replay, length: int) -> None:
    for least in (None, 1, length):
        assert_same_samples(a, b, length, least)


def assert_same_samples(a: Replay, b: Replay, length: int, least: int | None) -> None:
    assert len(a) == len(b)
    assert frames_written(a) == frames_written(b)
    assert newest_episode(a) == newest_episode(b)
    assert a.needed_episodes() == b.needed_episodes()
    try:
        first = a.sample(40, length, np.random.default_rng(3), least=least)
    except UserError:
        with pytest.raises(UserError, match="consecutive transitions"):
            b.sample(40, length, np.random.default_rng(3), least=least)
    else:
        second = b.sample(40, length, np.random.default_rng(3), least=least)
        assert all(torch.equal(x, y) for x, y in zip(first[:4], second[:4], strict=True))


@PROFILE
@given(
    steps=histories(),
    capacity=st.integers(2, 30),
    stack=st.integers(1, 4),
    length=st.integers(1, 4),
    cut=st.floats(0, 1),
)
def test_a_restored_replay_cannot_be_told_from_the_old_one(
    steps: list[Step], capacity: int, stack: int, length: int, cut: float
) -> None:
    size = (capacity, SHAPE, ACTIONS)
    replay = Replay(*size, stack=stack, pad=2)
    at = round(cut * len(steps))
    done = play(replay, steps[:at])
    again = resume(replay, done, *size, stack=stack, pad=2)
    assert_same(replay, again, length)
    for step in steps[at:]:
        done |= play(replay, [step])
        theirs = play(again, [step])
        for number, episode in theirs.items():
            for name in Episode._fields:
                assert np.array_equal(getattr(episode, name), getattr(done[number], name))
        assert_same(replay, again, length)
    # A second resume, from the state of the resumed one.
    assert_same(replay, resume(again, done, *size, stack=stack, pad=2), length)


@pytest.mark.parametrize("capacity", [8, 17, 100])
def test_needed_episodes_are_those_with_a_frame_in_the_ring(capacity: int) -> None:
    steps = script([4, 1, 6, 2, 9, 3], [True] * 6)
    replay = Replay(capacity, SHAPE, ACTIONS, stack=2)
    for end, step in enumerate(steps, start=1):
        play(replay, [step])
        kept = {s.episode for s in steps[:end][-capacity:]}
        finished = {s.episode for s in steps[:end] if s.last}
        assert replay.needed_episodes() == kept & finished


def test_the_state_is_a_copy() -> None:
    replay = Replay(6, SHAPE, ACTIONS, stack=2)
    steps = script([20], [True], finish=False)
    play(replay, steps[:5])
    state = replay.state()
    before = {key: value.clone() for key, value in state["running"].items()}
    play(replay, steps[5:])
    assert all(torch.equal(before[key], state["running"][key]) for key in before)


def test_a_state_of_another_size_or_an_episode_of_another_run_is_refused() -> None:
    replay = Replay(30, SHAPE, ACTIONS, stack=2)
    done = play(replay, script([5, 6], [True, True]))
    state = replay.state()
    with pytest.raises(UserError, match="same settings"):
        Replay(31, SHAPE, ACTIONS, stack=2).restore(state, done.__getitem__)
    with pytest.raises(UserError, match="episode 0 does not fit"):
        Replay(30, SHAPE, ACTIONS, stack=2).restore(state, lambda number: done[1])
    wide = Episode(np.zeros((6, 2, 4, 3), np.uint8), *done[0][1:])
    with pytest.raises(UserError, match="episode 0 does not fit"):
        Replay(30, SHAPE, ACTIONS, stack=2).restore(state, lambda number: wide)


def test_nbytes_is_what_is_allocated() -> None:
    gc.collect()
    tracemalloc.start()
    replay = Replay(500, (84, 84, 3), 6, stack=3, pad=4)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert replay.nbytes == Replay.nbytes_for(500, (84, 84, 3), 6, 4)
    assert replay.nbytes == pytest.approx(size, abs=20_000)


def test_the_ring_of_the_paper_fits_its_budget() -> None:
    frames = 100_000 * 84 * 84 * 3
    assert Replay.nbytes_for(100_000, (84, 84, 3), 38, 4) <= 1.25 * 2.1e9
    assert frames < Replay.nbytes_for(100_000, (84, 84, 3), 38, 0) < 1.01 * frames


def test_calls_out_of_order_and_wrong_shapes_are_refused_and_change_nothing() -> None:
    replay = Replay(10, SHAPE, ACTIONS, stack=2)
    frame = picture(0, 0)
    with pytest.raises(ValueError, match="start"):
        replay.add((0, 0), 0.0, 1.0, frame, last=False)
    with pytest.raises(ValueError, match="uint8"):
        replay.start(frame.astype(np.float32))
    with pytest.raises(ValueError, match="uint8"):
        replay.start(frame[..., :1])
    assert frames_written(replay) == 0
    assert newest_episode(replay) == -1
    replay.start(frame)
    with pytest.raises(ValueError, match="not ended"):
        replay.start(frame)
    with pytest.raises(ValueError, match="action"):
        replay.add((0, 0, 0), 0.0, 1.0, frame, last=False)
    with pytest.raises(ValueError, match="uint8"):
        replay.add((0, 0), 0.0, 1.0, frame[:1], last=False)
    assert frames_written(replay) == 1
    with pytest.raises(UserError, match="1 consecutive transitions"):
        replay.sample(1, 1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="at least 1"):
        replay.sample(1, 0, np.random.default_rng(0))


@pytest.mark.parametrize(("capacity", "stack"), [(1, 3), (0, 3), (10, 0)])
def test_sizes_that_cannot_work_are_refused(capacity: int, stack: int) -> None:
    with pytest.raises(UserError, match="too small"):
        Replay(capacity, SHAPE, ACTIONS, stack=stack)


@pytest.mark.parametrize(("stack", "length"), [(2, 1), (3, 4)])
def test_single_frames_are_those_of_the_stacked_states(stack: int, length: int) -> None:
    replay = Replay(30, SHAPE, ACTIONS, stack=stack, pad=0)
    play(replay, script([7, 9, 12], [False, True, False]))
    stacked = replay.sample(50, length, np.random.default_rng(4), least=1)
    chunk = replay.sample(50, length, np.random.default_rng(4), least=1, frames_per_state=stack)
    assert chunk.obs.shape == (length + stack, 50, *SHAPE)
    for images in (chunk.online(0, length + 1), chunk.target(0, length + 1)):
        for t in range(length + 1):
            state = torch.cat(tuple(images[t : t + stack]), dim=-1)
            assert torch.equal(state, stacked.obs[t])
    assert torch.equal(chunk.action, stacked.action)
    assert chunk.online(1, 2).shape[0] == chunk.target(1, 2).shape[0] == stack


def test_only_the_wanted_frames_are_sampled_and_they_are_the_same() -> None:
    replay = Replay(30, SHAPE, ACTIONS, stack=3, pad=1)
    play(replay, script([9, 12], [False, True]))
    whole, part = (
        replay.sample(20, 4, np.random.default_rng(4), frames_per_state=3, **wanted)
        for wanted in ({}, {"online": 2, "target": 1})
    )
    assert part.obs_target is not None
    assert (len(part.obs), len(part.obs_target), len(whole.obs)) == (4, 6, 7)
    for t in range(2):
        assert torch.equal(part.online(t, t + 1), whole.online(t, t + 1))
    for t in range(1, 5):
        assert torch.equal(part.target(t, 5), whole.target(t, 5))
    assert torch.equal(part.to(torch.device("cpu")).target(1, 5), whole.target(1, 5))
    with pytest.raises(ValueError, match="without these states"):
        part.online(0, 3)
    with pytest.raises(ValueError, match="without these states"):
        part.target(0, 2)


def test_single_frames_of_a_chunk_share_a_shift_and_the_target_has_its_own() -> None:
    replay = Replay(40, (16, 16, 1), ACTIONS, stack=3, pad=4)
    frame = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)  # a pixel tells its place
    replay.start(frame)
    for _ in range(30):
        replay.add((0, 0), 0.0, 1.0, frame, last=False)
    chunk = replay.sample(4000, 2, np.random.default_rng(0), frames_per_state=3)
    assert chunk.obs_target is not None
    online, target = (images.numpy()[:, :, 8, 8, 0] for images in (chunk.obs, chunk.obs_target))
    assert (online == online[:1]).all() and (target == target[:1]).all()
    table = np.zeros((9, 9), int)
    np.add.at(table, (online[0] // 16 - 4, target[0] // 16 - 4), 1)
    assert chi2_contingency(table).pvalue > 1e-3


def test_a_state_has_as_many_frames_as_the_replay_stacks() -> None:
    replay = Replay(30, SHAPE, ACTIONS, stack=2, pad=0)
    play(replay, script([7], [False]))
    with pytest.raises(ValueError, match="a state has 2 frames"):
        replay.sample(3, 1, np.random.default_rng(0), frames_per_state=3)
