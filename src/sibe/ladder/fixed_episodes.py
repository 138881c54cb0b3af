"""The same episodes for every encoder: recorded from the state, shown again as images.

Physics is a function of reset seed and actions, so an episode that was played without looking can
be seen later, before any background. Every fifth episode is held out; they were recorded while an
agent learned, so both shares run from random to skilled play.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from sibe.analysis.representation.ridge import FOLDS
from sibe.config.schema import EnvConfig
from sibe.envs.backgrounds.background import BACKGROUND_FRAME
from sibe.envs.frame_stack import FrameStack
from sibe.envs.rendering.renderer import Frame
from sibe.errors import UserError
from sibe.ladder.recording import Recording
from sibe.ladder.state_env import task_vector
from sibe.replay.replay import Replay
from sibe.training.environment import make_training_env

MOMENTS = 50
"""States kept of each episode to judge an encoder by."""
_HELD_OUT = FOLDS - 1

Floats = npt.NDArray[np.float64]


class Scale(NamedTuple):
    """Mean and standard deviation of each coordinate of the task's observation."""

    mean: Floats
    """``[K]``"""
    std: Floats
    """``[K]``; 1 where nothing varies"""

    def standardized(self, states: npt.NDArray[Any]) -> Floats:
        """Return ``states [..., K]`` in standard deviations from the mean."""
        values: Floats = (states - self.mean) / self.std
        return values


class HeldOutSamples(NamedTuple):
    """N states of all episodes, evenly spaced in each: what an encoder is judged by."""

    images: Frame
    """uint8 ``[N, H, W, C·stack]``"""
    states: Floats
    """``[N, K]``, standardized"""
    fold: npt.NDArray[np.int64]
    """``[N]``, number of the episode modulo ``FOLDS``"""

    @property
    def held_out(self) -> npt.NDArray[np.bool_]:
        """Which of them belong to held-out episodes: ``[N]``."""
        mask: npt.NDArray[np.bool_] = self.fold == _HELD_OUT
        return mask


class FixedEpisodes(NamedTuple):
    """What an encoder learns from, and what it is judged by."""

    replay: Replay
    """the episodes that are not held out; after each action, in the same
    array, comes the standardized state it was chosen in: ``[A + K]``"""
    moments: HeldOutSamples
    action_dim: int
    """A: how much of an action in the replay is the action itself"""


def state_scale(recordings: Sequence[Recording]) -> Scale:
    """Return the scale of the states of those recordings that are not held out."""
    states = np.concatenate(
        [one.states for number, one in enumerate(recordings) if not _is_held_out(number)]
    ).astype(np.float64)
    std = states.std(axis=0)
    return Scale(states.mean(axis=0), np.where(std > 1e-6, std, 1.0))


def show_episodes(
    config: EnvConfig, recordings: Sequence[Recording], scale: Scale, *, shift: int
) -> FixedEpisodes:
    """Play the recordings again in the world of ``config`` and keep what is seen.

    Args:
        config: image size, stack and background.
        recordings: at least ``FOLDS``.
        scale: of the states, as they are kept.
        shift: random shift of the images that the replay hands out, in pixels.
    """
    if len(recordings) < FOLDS:
        raise UserError(
            f"the rungs supervised and alone need {FOLDS} episodes and --env-steps gave "
            f"{len(recordings)}: raise it"
        )
    learned = [one for number, one in enumerate(recordings) if not _is_held_out(number)]
    action_dim, quantities = recordings[0].actions.shape[1], recordings[0].states.shape[1]
    images: list[Frame] = []
    states: list[Floats] = []
    folds: list[int] = []
    env = make_training_env(config)
    try:
        shape = env.observation_space.shape
        assert shape is not None
        height, width, channels = shape
        replay = Replay(
            sum(len(one.states) for one in learned),
            (height, width, channels),
            action_dim + quantities,
            stack=config.stack,
            pad=shift,
        )
        for number, one in enumerate(recordings):
            frames = play_again(env, one)
            labels = scale.standardized(one.states)
            if not _is_held_out(number):
                _remember(replay, one, frames, labels)
            seen = _stacked(frames, config.stack)
            for index in _evenly(len(seen), MOMENTS):
                images.append(seen[index])
                states.append(labels[index])
                folds.append(number % FOLDS)
    finally:
        env.close()
    moments = HeldOutSamples(np.stack(images), np.stack(states), np.array(folds))
    return FixedEpisodes(replay, moments, action_dim)


def play_again(env: gym.Env[Any, Any], recording: Recording) -> list[Frame]:
    """Return what ``env`` shows of an episode, one frame per recorded state.

    An env that does not do again what it did before is refused.
    """
    options = {BACKGROUND_FRAME: recording.shown}
    images = [env.reset(seed=recording.seed, options=options)[0]]
    vectors, rewards = [task_vector(env)], []
    for action in recording.actions:
        image, reward, *_ = env.step(action)
        images.append(image)
        vectors.append(task_vector(env))
        rewards.append(float(reward))
    same = np.array_equal(np.stack(vectors), recording.states)
    if not same or tuple(rewards) != recording.rewards:
        raise UserError(
            "the env does not repeat an episode from its seed and actions: the rungs supervised "
            "and alone cannot be had (--rungs state error agent)"
        )
    return images


def _stacked(frames: list[Frame], stack: int) -> list[Frame]:
    """Return the states uint8 ``[H, W, C·stack]`` of an episode."""
    first, *rest = frames
    stacked = FrameStack(stack)
    return [stacked.start(first), *map(stacked.append, rest)]


def _remember(replay: Replay, one: Recording, frames: list[Frame], labels: Floats) -> None:
    replay.start(frames[0])
    last = len(one.actions) - 1
    for step, (action, reward) in enumerate(zip(one.actions, one.rewards, strict=True)):
        discount = float(not (one.terminated and step == last))
        labeled = np.concatenate((action, labels[step]))
        replay.add(labeled, reward, discount, frames[step + 1], last=step == last)


def _is_held_out(number: int) -> bool:
    return number % FOLDS == _HELD_OUT


def _evenly(count: int, most: int) -> list[int]:
    """Return up to ``most`` different indices below ``count``, evenly spaced."""
    return sorted({int(i) for i in np.linspace(0, count - 1, min(count, most))})
