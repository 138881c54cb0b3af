"""Evaluation: whole episodes with the mean action, several at once, on envs and seeds of its own.

The episodes advance in step and their states are encoded as one batch, so ten episodes cost
little more encoding than one; the policy is told which of them are still running. Nothing here
draws from a stream that training uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from sibe.agents.protocol import Policy
from sibe.config.schema import EnvConfig
from sibe.envs.seeding import stream_seed
from sibe.training.environment import make_configured_env
from sibe.training.own_envs import OwnEnvs

MOST_ENVS = 10
"""Environments that exist at once; more episodes are played in rounds."""
Frame = npt.NDArray[np.uint8]


class EvalEpisode(NamedTuple):
    """What came of one evaluation episode."""

    seed: int
    episode_return: float
    env_steps: int


def make_eval_envs(
    config: EnvConfig, count: int, own: OwnEnvs | None = None
) -> list[gym.Env[Any, Any]]:
    """Return ``count`` evaluation environments: other seeds and clips than training's.

    Of ``own`` as many as it has, at most.
    """
    if own is None:
        return [make_configured_env(config, split="eval") for _ in range(count)]
    envs = [own.evaluation(number) for number in range(min(count, own.most))]
    return [make_configured_env(config, split="eval", own=env) for env in envs]


def numbered_seeds(seed: int, episodes: int) -> list[int]:
    """Return the seeds of the episodes that `sibe eval --seed SEED` plays."""
    return [stream_seed(seed, "sibe eval", i) for i in range(episodes)]


def evaluate(
    policy: Policy,
    envs: Sequence[gym.Env[Any, Any]],
    seeds: Sequence[int],
    *,
    record: list[Frame] | None = None,
) -> list[EvalEpisode]:
    """Play one episode per seed.

    Args:
        policy: is reset for each round and then acts without chance.
        envs: as many as there are processors worth; episodes are dealt out in rounds.
        seeds: one per episode.
        record: is given the newest frame of each state of the first episode.
    """
    episodes: list[EvalEpisode] = []
    for first in range(0, len(seeds), len(envs)):
        batch = list(zip(envs, seeds[first : first + len(envs)], strict=False))
        episodes += _round(policy, batch, record if first == 0 else None)
    return episodes


def _round(
    policy: Policy, batch: list[tuple[gym.Env[Any, Any], int]], record: list[Frame] | None
) -> list[EvalEpisode]:
    policy.reset()
    states = [env.reset(seed=seed)[0] for env, seed in batch]
    returns, env_steps = [0.0] * len(batch), [0] * len(batch)
    running = list(range(len(batch)))
    while running:
        if record is not None and 0 in running:
            record.append(_shown(batch[0][0]))
        actions = policy.act(np.stack([states[i] for i in running]), None, tuple(running))
        for i, action in zip(tuple(running), actions, strict=True):
            states[i], reward, terminated, truncated, info = batch[i][0].step(action)
            returns[i] += float(reward)
            env_steps[i] += info["env_steps"]
            if terminated or truncated:
                running.remove(i)
    if record is not None:
        record.append(_shown(batch[0][0]))
    return [
        EvalEpisode(seed, episode_return, steps)
        for (_, seed), episode_return, steps in zip(batch, returns, env_steps, strict=True)
    ]


def _shown(env: gym.Env[Any, Any]) -> Frame:
    """Return the newest frame, a copy: an environment may draw into one buffer."""
    return np.array(env.render(), np.uint8)
