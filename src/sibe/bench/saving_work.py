"""What a run writes between two checkpoints, on both sides, and the bytes it takes.

Ours: the new episodes, one file each, and a checksummed checkpoint, all synced to the disk. The
reference: ``torch.save`` of weights and optimizers, and the new part of the replay as it lies in
memory; synced by nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from sibe.bench.workloads import (
    ACTION_DIM,
    episode_steps,
    make_agent,
    make_reference,
    our_replay,
    plain_batch,
    reference_replay,
    sample_chunk,
)
from sibe.config.schema import RunConfig
from sibe.replay.episodes import Episode, write_episode
from sibe.storage import checkpoint


def our_saving(config: RunConfig, transitions: int, folder: Path) -> Callable[[], object]:
    """Write a checkpoint and the episodes of so many transitions into ``folder``."""
    replay, agent = our_replay(config, transitions), make_agent(config)
    agent.update(sample_chunk(config, replay))  # optimizers have no state before the first step
    length, side = episode_steps(config), config.env.size
    steps = np.zeros(length, np.float32)
    frames = np.random.default_rng(0).integers(0, 256, (length + 1, side, side, 3), np.uint8)
    episode = Episode(frames, np.zeros((length, ACTION_DIM), np.float32), steps, steps)
    count = -(-transitions // length)
    folder.mkdir(parents=True)

    def save() -> None:
        for number in range(count):
            write_episode(folder, number, episode)
        state = {"agent": agent.state_dict(), "replay": replay.state()}
        checkpoint.save(folder, 0, state, needs=replay.needed_episodes())

    return save


def reference_saving(config: RunConfig, transitions: int, folder: Path) -> Callable[[], object]:
    """Write the learner and so many transitions of the reference replay into ``folder``."""
    replay, agent = reference_replay(config, transitions), make_reference(config)
    source = our_replay(config, 2 * episode_steps(config))
    agent.update(plain_batch(sample_chunk(config, source)))
    folder.mkdir(parents=True)

    def save() -> None:
        torch.save(agent.state_dict(), folder / "agent.pt")
        arrays = {name: getattr(replay, name) for name in ("obs", "next_obs", "action", "reward")}
        np.savez(folder / "replay.npz", discount=replay.discount, last=replay.last, **arrays)

    return save


def bytes_in(folder: Path) -> int:
    """Return the bytes of the files in ``folder``."""
    return sum(file.stat().st_size for file in folder.iterdir())
