"""The pieces of work that are timed, for both sides, built inside the process that does them.

Each function returns a callable; what it works on is made beforehand, the same way for both sides:
random pixels (their values do not matter to the time), episodes as long as those of the task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sibe.agents.sac.agent import SAC
from sibe.bench.reference.learner import SeparateSAC
from sibe.bench.reference.replay import Batch, StackedReplay
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.replay.chunk import Chunk
from sibe.replay.replay import Replay

Work = Callable[[], object]
TASK, ACTION_DIM = "cartpole_swingup", 1
_EPISODE_ENV_STEPS = 1000


def bench_config(preset: str, method: str = "sibe", background: str = "noise") -> RunConfig:
    """Return the run that is measured: cartpole_swingup under ``preset``."""
    return preset_config(preset, task=TASK, method=method, background=background)


def period(config: RunConfig) -> int:
    """Return after how many updates the schedule of actor and targets repeats."""
    return math.lcm(config.sac.actor_every, config.sac.target_every)


def make_agent(config: RunConfig) -> SAC:
    """Return an agent of ours."""
    return build_sac(config, ACTION_DIM, torch.Generator().manual_seed(0), torch.device("cpu"))


def make_reference(config: RunConfig) -> SeparateSAC:
    """Return an agent of the reference."""
    return SeparateSAC(config, ACTION_DIM, torch.Generator().manual_seed(0))


def our_update(config: RunConfig, batch: int | None = None) -> Work:
    """One period of updates; ``batch`` chunks if not as many as the config says."""
    agent, chunk = make_agent(config), _random_chunk(config, batch)

    def updates() -> None:
        for _ in range(period(config)):
            agent.update(chunk)

    return updates


def reference_update(config: RunConfig) -> Work:
    """One period of the reference updates."""
    agent, batch = make_reference(config), plain_batch(_random_chunk(config))

    def updates() -> None:
        for _ in range(period(config)):
            agent.update(batch)

    return updates


def plain_batch(chunk: Chunk) -> Batch:
    """Return a chunk as the reference holds it: NCHW floats, s_t and s_{t+1} apart."""
    steps = len(chunk.reward)
    obs, next_obs = (
        _stacked(images, chunk.frames_per_state).permute(0, 1, 4, 2, 3).float().contiguous()
        for images in (chunk.online(0, steps), chunk.target(1, steps + 1))
    )
    return Batch(obs, chunk.action, chunk.reward, chunk.discount, next_obs)


def _stacked(images: Tensor, frames: int) -> Tensor:
    """Return states ``[T, B, H, W, C·frames]`` from ``[T + frames - 1, B, H, W, C]``."""
    states = len(images) - frames + 1
    return torch.cat([images[first : first + states] for first in range(frames)], dim=-1)


def our_sampling(config: RunConfig, transitions: int) -> Work:
    """Draw and augment one minibatch from a replay of so many transitions."""
    replay, rng = our_replay(config, transitions), np.random.default_rng(0)
    drawn = sampling(config)  # looks for installed methods, which takes longer than a minibatch
    return lambda: replay.minibatch(drawn, rng)


def reference_sampling(config: RunConfig, transitions: int) -> Work:
    """Draw and augment one minibatch as the reference does."""
    replay, rng = reference_replay(config, transitions), np.random.default_rng(0)
    drawn = sampling(config)
    return lambda: replay.sample(drawn.batch, drawn.length, drawn.shift, rng)


def our_replay(config: RunConfig, transitions: int) -> Replay:
    """Return a replay of ours that holds so many transitions of random pixels."""
    side, length = config.env.size, episode_steps(config)
    frames = transitions + -(-transitions // length)  # an episode has one frame more
    replay = Replay(
        frames, (side, side, 3), ACTION_DIM, stack=config.env.stack, pad=config.sac.shift
    )
    pictures = _pictures((side, side, 3))
    for done in range(transitions):
        if done % length == 0:
            replay.start(next(pictures))
        last = (done + 1) % length == 0 or done + 1 == transitions
        replay.add(np.zeros(ACTION_DIM, np.float32), 0.0, 1.0, next(pictures), last=last)
    return replay


def reference_replay(config: RunConfig, transitions: int, capacity: int = 0) -> StackedReplay:
    """Return the reference replay with so many transitions of random pixels."""
    side, length = config.env.size, episode_steps(config)
    shape = (3 * config.env.stack, side, side)
    replay = StackedReplay(max(capacity, transitions), shape, ACTION_DIM)
    pictures, action = _pictures(shape), np.zeros(ACTION_DIM, np.float32)
    for done in range(transitions):
        last = (done + 1) % length == 0
        replay.add(next(pictures), action, 0.0, 1.0, next(pictures), last=last)
    return replay


def episode_steps(config: RunConfig) -> int:
    """Return the agent steps of an episode of the task."""
    return -(-_EPISODE_ENV_STEPS // config.env.action_repeat)


def our_env_step(config: RunConfig) -> Work:
    """One agent step in our environment, random actions."""
    from sibe.training.environment import make_configured_env

    env, rng = make_configured_env(config.env, split="train"), np.random.default_rng(0)
    env.reset(seed=0)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(_random_action(rng))
        if terminated or truncated:
            env.reset()

    return step


def reference_env_step(config: RunConfig) -> Work:
    """One agent step in the reference environment."""
    from sibe.bench.reference.environment import StockPixels

    rng = np.random.default_rng(0)
    env = StockPixels(config.env, rng)
    env.reset()

    def step() -> None:
        if env.step(_random_action(rng))[2]:
            env.reset()

    return step


def envpool_env_step(config: RunConfig) -> Work:
    """One agent step in EnvPool, which begins the next episode by itself."""
    from sibe.bench.reference.envpool import make_envpool

    rng = np.random.default_rng(0)
    env = make_envpool(config.env, seed=0)

    def step() -> None:
        env.step(_random_action(rng)[None].astype(np.float64))

    return step


def _random_action(rng: np.random.Generator) -> NDArray[np.float32]:
    return rng.uniform(-1, 1, ACTION_DIM).astype(np.float32)


def sample_chunk(
    config: RunConfig, replay: Replay, rng: np.random.Generator | None = None
) -> Chunk:
    """Draw the minibatch of an update."""
    return replay.minibatch(sampling(config), rng or np.random.default_rng(0))


def _random_chunk(config: RunConfig, batch: int | None = None) -> Chunk:
    generator, steps = torch.Generator().manual_seed(0), sampling(config).length
    batch = batch or sampling(config).batch
    side, frames = config.env.size, sampling(config).frames_per_state
    channels = 3 * config.env.stack // frames
    shape = (steps + frames, batch, side, side, channels)
    pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    action = torch.rand(steps, batch, ACTION_DIM, generator=generator) * 2 - 1
    reward = torch.rand(steps, batch, generator=generator)
    return Chunk(pixels, action, reward, torch.ones(steps, batch), None, frames)


def _pictures(shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    rng = np.random.default_rng(0)
    known = rng.integers(0, 256, (16, *shape), dtype=np.uint8)
    while True:
        yield from known
