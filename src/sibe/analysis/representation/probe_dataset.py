"""Samples of evaluation episodes, taken apart: the robot, what was behind it, the true state.

Every frame of the ``noise`` and ``video`` settings is a robot laid over a picture. Kept apart, any
robot can be shown before any picture, so that pose and background vary independently, or one of
them not at all. Half of the episodes are played by the policy and half by random actions: a good
policy alone would show the robot in few poses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from sibe.config.schema import EnvConfig
from sibe.envs.backgrounds.background import compose
from sibe.envs.frame_stack import newest_frames
from sibe.envs.rendering.renderer import Frame
from sibe.envs.rendering.view import average_blocks
from sibe.envs.seeding import stream_seed
from sibe.envs.sensors import STATE, Observation, Sensors
from sibe.envs.state import RobotShare, SimulatorState, simulator_state, visible_positions
from sibe.envs.tasks import check_background, check_clips
from sibe.errors import UserError
from sibe.training.environment import make_configured_env
from sibe.training.seeding import numpy_stream

Floats = npt.NDArray[np.float64]
Act = Callable[[Observation], npt.NDArray[np.float32]]


class Player(Protocol):
    """What plays: a ``sibe.policy.load.Policy`` or anything like it."""

    def reset(self) -> None:
        """Begin an episode."""

    def act(self, obs: Observation) -> npt.NDArray[np.float32]:
        """Return an action [A] for a state uint8 [H, W, C]."""


class Quantities(NamedTuple):
    """Named numbers of each moment."""

    names: tuple[str, ...]
    values: Floats
    """``[N, len(names)]``"""


class ProbeDataset(NamedTuple):
    """N moments; a frame is ``layers`` over ``pictures``, or ``layers`` itself if clean."""

    layers: Frame
    """uint8 ``[N, stack, H, W, 4]`` (robot and its coverage), clean ``[N, stack, H, W, 3]``"""
    pictures: Frame | None
    """uint8 ``[N, stack, H, W, 3]``; None if clean"""
    positions: Quantities
    velocities: Quantities
    task: Quantities
    visible: tuple[str, ...]
    """the positions that leave a trace in the picture"""
    episode: npt.NDArray[np.int64]
    """``[N]``"""
    supersample: int = 1
    """by how much layers and pictures are larger than what the agent sees"""
    robot: Floats = np.empty(0)
    """``[N]`` share of the picture that the robot's moving parts cover; NaN without MuJoCo"""
    sensors: Sensors = Sensors()
    """what an observation is made of; layers of several cameras lie side by side in the channels"""
    vectors: npt.NDArray[np.float32] | None = None
    """``[N, S]`` the sensor state"""


class _Sample(NamedTuple):
    frames: tuple[Frame, ...]
    pictures: tuple[Frame, ...]
    state: SimulatorState
    robot: float
    vector: npt.NDArray[np.float32] | None


def collect(
    config: EnvConfig, player: Player, *, episodes: int, each: int, seed: int
) -> ProbeDataset:
    """Play ``episodes`` evaluation episodes and keep up to ``each`` random moments of every one.

    Args:
        config: the world; its ``split`` is evaluation: other seeds and clips than training's.
        player: the policy, which knows how many of the newest frames it wants.
        episodes: even ones are the player's, odd ones are random.
        each: moments kept per episode.
        seed: which episodes, moments and random actions.
    """
    env = make_configured_env(config, split="eval")
    rng, share = numpy_stream(seed, "moments"), RobotShare(env.unwrapped)
    kept: list[list[_Sample]] = []
    try:
        for number in range(episodes):
            player.reset()
            play = player.act if number % 2 == 0 else _random(env, rng)
            reset = stream_seed(seed, "moments", number)
            kept.append(_episode(env, play, reset, config.stack, each, rng, share))
        visible = visible_positions(env.unwrapped)
    finally:
        share.close()
        env.close()
    return _stacked(kept, visible)._replace(supersample=config.supersample, sensors=config.seen)


def behind_robot(config: EnvConfig, background: str | None, clips: str | None) -> EnvConfig:
    """Return the same world with another background or clip bank, where one is given."""
    shown = check_background(background or config.background)
    check_clips(shown, clips)
    return replace(config, background=shown, clips=clips or config.clips)


def observations(moments: ProbeDataset, poses: Any, backgrounds: Any) -> Observation:
    """Return states uint8 ``[M, H, W, 3·stack]``: robots ``poses`` before ``backgrounds``.

    Both are index arrays ``[M]`` into the moments; clean moments have no background to choose.
    With several sensors, states are a dict; the sensor state goes with the pose.
    """
    sensors = moments.sensors
    if sensors.bare:
        return _images(moments, moments.layers, poses, backgrounds)
    layers = np.split(moments.layers, len(sensors.views), axis=-1) if sensors.pixels else []
    views = zip(sensors.views, layers, strict=True)
    states = {name: _images(moments, layer, poses, backgrounds) for name, layer in views}
    if moments.vectors is not None:
        states[STATE] = moments.vectors[poses]
    return {name: states[name] for name in sensors.names}


def _images(moments: ProbeDataset, layers: Frame, poses: Any, backgrounds: Any) -> Any:
    states = []
    for pose, background in zip(poses, backgrounds, strict=True):
        frames = list(layers[pose])
        if moments.pictures is not None:
            behind = moments.pictures[background]
            frames = [
                average_blocks(compose(robot, picture), moments.supersample)
                for robot, picture in zip(frames, behind, strict=True)
            ]
        states.append(np.concatenate(frames, axis=-1))
    return np.stack(states)


def pose_features(moments: ProbeDataset) -> Floats:
    """Return what poses are compared by, ``[N, P]``: visible positions in standard deviations.

    An env without joints is compared by its own observation.
    """
    values = moments.positions.values[:, np.isin(moments.positions.names, moments.visible)]
    if not values.size:
        values = moments.task.values
    spread = values.std(axis=0)
    moving = spread > 1e-9
    if not moving.any():
        raise UserError(
            "the env shows no simulator state that changes: there is nothing to compare"
        )
    centered = values[:, moving] - values[:, moving].mean(axis=0)
    features: Floats = centered / spread[moving]
    return features


def _random(env: gym.Env[Any, Any], rng: np.random.Generator) -> Act:
    return lambda _: rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)


def _episode(
    env: gym.Env[Any, Any],
    act: Act,
    seed: int,
    stack: int,
    each: int,
    rng: np.random.Generator,
    share: Callable[[], float],
) -> list[_Sample]:
    """Play an episode; each of its moments is as likely to be kept (a reservoir)."""
    recent: deque[tuple[Frame, Frame | None]] = deque(maxlen=stack)
    kept: list[_Sample] = []
    inner: Any = env.unwrapped
    state, _ = env.reset(seed=seed)
    seen, done = 0, False
    while True:
        behind = None if inner.view is None else inner.view.picture
        frame = _shown(inner, state, stack)
        recent.append((frame, behind))
        if len(recent) == stack:
            place = len(kept) if len(kept) < each else int(rng.integers(seen + 1))
            if place < each:
                vector = state.get(STATE) if isinstance(state, dict) else None
                kept[place : place + 1] = [_moment(inner, recent, share(), vector)]
            seen += 1
        if done:
            return kept
        state, _, terminated, truncated, _ = env.step(act(state))
        done = terminated or truncated


def _shown(inner: Any, state: Observation, stack: int) -> Frame:
    """Return the newest frames of all cameras, along the channels: the robot alone, or clean."""
    if inner.view is not None and inner.view.layer is not None:
        return np.concatenate([view.layer for view in inner.views], axis=-1)
    newest = newest_frames(state, 1, stack=stack)
    views = list(newest.values()) if isinstance(newest, dict) else [newest]
    pictures = [view for view in views if view.dtype == np.uint8]
    return np.concatenate(pictures, axis=-1) if pictures else np.empty((0, 0, 0), np.uint8)


def _moment(
    inner: Any,
    recent: deque[tuple[Frame, Frame | None]],
    robot: float,
    vector: npt.NDArray[np.float32] | None,
) -> _Sample:
    frames = tuple(frame for frame, _ in recent)
    pictures = tuple(picture for _, picture in recent if picture is not None)
    return _Sample(frames, pictures, simulator_state(inner), robot, vector)


def _stacked(kept: list[list[_Sample]], visible: set[str]) -> ProbeDataset:
    moments = [moment for episode in kept for moment in episode]
    if not moments:
        raise UserError("the episodes are shorter than a stack of frames: there is nothing to see")
    pictures = np.array([m.pictures for m in moments]) if moments[0].pictures else None
    groups = []
    for group in range(3):
        names = tuple(moments[0].state[group])
        table = np.array([list(m.state[group].values()) for m in moments], np.float64)
        groups.append(Quantities(names, table.reshape(len(moments), len(names))))
    episode = np.repeat(np.arange(len(kept)), [len(episode) for episode in kept])
    frames = np.array([m.frames for m in moments])
    positions, velocities, task = groups
    return ProbeDataset(
        frames,
        pictures,
        positions,
        velocities,
        task,
        tuple(sorted(visible)),
        episode,
        robot=np.array([m.robot for m in moments]),
        vectors=None if moments[0].vector is None else np.array([m.vector for m in moments]),
    )
