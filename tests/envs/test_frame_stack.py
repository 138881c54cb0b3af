"""Stacks of frames of any number of channels."""

from __future__ import annotations

import numpy as np
import pytest

from sibe.envs.frame_stack import FrameStack, newest_frames


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_newest_frames_are_the_last_channels(channels: int) -> None:
    frames = [np.full((2, 2, channels), value, np.uint8) for value in (5, 6, 7)]
    state = np.concatenate(frames, axis=-1)
    for count in (1, 2, 3):
        expected = np.concatenate(frames[3 - count :], axis=-1)
        np.testing.assert_array_equal(newest_frames(state, count, stack=3), expected)
        np.testing.assert_array_equal(newest_frames(state[None], count, stack=3), expected[None])


def test_states_are_not_touched_when_an_env_draws_into_one_buffer() -> None:
    stack, buffer = FrameStack(2), np.zeros((1, 1, 1), np.uint8)
    states = [stack.start(buffer)]
    for _ in range(3):
        buffer += 1
        states.append(stack.append(buffer))
    assert [state.ravel().tolist() for state in states] == [[0, 0], [0, 1], [1, 2], [2, 3]]
    states[-1][:] = 9  # nor do states share memory with those that follow
    assert stack.append(buffer).ravel().tolist() == [3, 3]
    assert stack.start(buffer).ravel().tolist() == [3, 3]


def test_a_stack_of_one_is_the_frame_itself_also_of_vectors() -> None:
    stack, vector = FrameStack(1), np.array([1.5, 2.5], np.float32)
    for state in (stack.start(vector), stack.append(vector)):
        assert state.dtype == np.float32 and state.tolist() == [1.5, 2.5]
