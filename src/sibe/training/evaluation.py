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
from sibe.envs.sensors import each
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
    video_size: int | None = None,
    fixed_batch: bool = False,
) -> list[EvalEpisode]:
    """Play one episode per seed.

    Args:
        policy: is reset for each round and then acts without chance.
        envs: as many as there are processors worth; episodes are dealt out in rounds.
        seeds: one per episode.
        record: is given the newest frame of each state of the first episode.
        video_size: longer side of what is recorded; None for the frames that the policy sees.
        fixed_batch: fill each batch up to ``MOST_ENVS`` states, so that an episode does not depend
            on how many others there are: the order of summation in a matrix product, and with it
            the last bits of an action, depends on the size of the batch.
    """
    episodes: list[EvalEpisode] = []
    rows = MOST_ENVS if fixed_batch else 0
    for first in range(0, len(seeds), len(envs)):
        batch = list(zip(envs, seeds[first : first + len(envs)], strict=False))
        film = record if first == 0 else None
        episodes += _round(policy, batch, film, video_size, rows)
    return episodes


def frame_rate(env: gym.Env[Any, Any]) -> float:
    """Return the frames per second at which a video of ``env`` plays in real time."""
    return float(env.metadata.get("render_fps") or 25)


def _round(
    policy: Policy,
    batch: list[tuple[gym.Env[Any, Any], int]],
    record: list[Frame] | None,
    video_size: int | None,
    rows: int,
) -> list[EvalEpisode]:
    policy.reset()
    states = [env.reset(seed=seed)[0] for env, seed in batch]
    states += [each(np.zeros_like, states[0])] * (rows - len(batch))
    returns, env_steps = [0.0] * len(batch), [0] * len(batch)
    running = list(range(len(batch)))
    while running:
        if record is not None and 0 in running:
            record.append(_shown(batch[0][0], video_size))
        shown = tuple(range(rows)) if rows else tuple(running)
        seen = each(lambda *parts: np.stack(parts), *(states[i] for i in shown))
        actions = policy.act(seen, None, shown)
        for i, action in zip(shown, actions, strict=True):
            if i not in running:
                continue
            states[i], reward, terminated, truncated, info = batch[i][0].step(action)
            returns[i] += float(reward)
            env_steps[i] += info["env_steps"]
            if terminated or truncated:
                running.remove(i)
    if record is not None:
        record.append(_shown(batch[0][0], video_size))
    return [
        EvalEpisode(seed, episode_return, steps)
        for (_, seed), episode_return, steps in zip(batch, returns, env_steps, strict=True)
    ]


def _shown(env: gym.Env[Any, Any], size: int | None) -> Frame:
    """Return the newest frame, a copy: an environment may draw into one buffer."""
    frame = np.array(env.render(), np.uint8)
    if size is None:
        return frame
    height, width = (max(1, round(side * size / max(frame.shape[:2]))) for side in frame.shape[:2])
    larger: Frame = env.get_wrapper_attr("enlarged")(height, width)
    return larger
