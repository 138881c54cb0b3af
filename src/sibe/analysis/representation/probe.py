"""What a representation knows of the robot, and what of the background.

Linear decoding (R² on held-out episodes) of the simulator's positions, velocities and the task's
own observation, and of the coarse content of what was painted behind the robot; and how far
nearness in the representation is nearness of poses, or of backgrounds. Backgrounds are exchanged
at random between moments, so that nothing can be read off one by knowing the other. All runs are
shown the same observations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sibe.analysis.representation.cluster_bootstrap import (
    bootstrap_weights,
    clustered_mean,
    interval,
)
from sibe.analysis.representation.compared_runs import untrained_agent
from sibe.analysis.representation.latents import low_frequencies, represent
from sibe.analysis.representation.neighbors import Indices, chance_overlap, nearest, overlap
from sibe.analysis.representation.probe_dataset import (
    Floats,
    ProbeDataset,
    collect,
    observations,
    pose_features,
)
from sibe.analysis.representation.ridge import FOLDS, held_out_predictions, r_squared
from sibe.analysis.statistics import Estimate
from sibe.config.schema import EnvConfig
from sibe.envs.frame_stack import newest_frames
from sibe.envs.sensors import Observation
from sibe.policy.trained_policy import TrainedPolicy
from sibe.training.seeding import numpy_stream

NEIGHBORS = 10
UNTRAINED = "untrained"
_MOMENTS = 50  # kept of each episode
R2, KNN = "R2", "neighbors"


class Score(NamedTuple):
    """One number of one representation."""

    run: str
    latent: str
    measure: str
    """R2, or neighbors: the share of the nearest that are also nearest in the other space"""
    group: str
    """positions, velocities, task, background; pose, background"""
    quantity: str
    """one of the group, or "" for the mean over those that can be seen"""
    estimate: Estimate
    chance: float
    """what a representation that knows nothing would get"""


class Target(NamedTuple):
    """A group of quantities to decode from each observation."""

    group: str
    names: tuple[str, ...]
    values: Floats
    """``[N, Q]``"""
    counted: tuple[bool, ...]
    """which of them the group's mean is made of"""
    cluster: Indices
    """``[N]``: the episode that the values come from, counted from 0"""


class Questions(NamedTuple):
    """The observations and what is asked about them."""

    states: Observation
    """uint8 ``[N, H, W, C·stack]``, or by sensor"""
    stack: int
    fold: Indices
    """``[N]``: which share of the episodes it belongs to"""
    targets: list[Target]
    spaces: dict[str, tuple[Indices, Indices]]
    """by name (pose, background): nearest neighbors ``[N, k]``, and the episode ``[N]``"""


def probe_runs(
    policies: dict[str, TrainedPolicy], env: EnvConfig, *, untrained: bool, episodes: int, seed: int
) -> tuple[list[Score], int]:
    """Return the scores of all runs and the number of observations they were shown.

    Args:
        policies: by label; the first one plays.
        env: where; its background may be another than any was trained with.
        untrained: also probe the first run's networks as they were before training.
        episodes: how many are played.
        seed: which.
    """
    first = next(iter(policies.values()))
    deepest = replace(env, stack=max(policy.config.env.stack for policy in policies.values()))
    player = _Shortened(first, deepest.stack)
    moments = collect(deepest, player, episodes=episodes, each=_MOMENTS, seed=seed)
    asked = ask(moments, numpy_stream(seed, "probe"))
    subjects: list[tuple[str, int, Any, str | None]] = []
    if untrained:
        subjects.append((UNTRAINED, first.config.env.stack, untrained_agent(first), None))
    names = env.seen.names
    for label, one in policies.items():
        subjects.append((label, one.config.env.stack, one.agent, None))
        for name in names if len(names) > 1 else ():
            subjects.append((f"{label}, no {name}", one.config.env.stack, one.agent, name))
    scores = []
    for label, stack, agent, without in subjects:
        rng = numpy_stream(seed, "resamples")
        scores += probe(label, agent, asked, rng, stack=stack, without=without)
    return scores, len(asked.fold)


class _Shortened:
    """A policy that sees the newest frames of a deeper stack than it was trained with."""

    def __init__(self, policy: TrainedPolicy, stack: int) -> None:
        self._policy, self._stack = policy, stack
        self.reset = policy.reset

    def act(self, obs: Observation) -> npt.NDArray[np.float32]:
        """Return the action for a state uint8 [H, W, C], or by sensor."""
        wanted = self._policy.config.env.stack
        return self._policy.act(newest_frames(obs, wanted, stack=self._stack))


def ask(moments: ProbeDataset, rng: np.random.Generator) -> Questions:
    """Exchange the backgrounds of the moments and ask for both."""
    fold = (moments.episode // 2) % FOLDS  # of two episodes, one is the policy's and one random
    everyone = np.arange(len(fold))
    behind = everyone if moments.pictures is None else _shuffled_within(fold, rng)
    episode = np.unique(moments.episode, return_inverse=True)[1]
    targets = list(_state_targets(moments, episode))
    spaces = {"pose": (nearest(pose_features(moments), NEIGHBORS), episode)}
    if moments.pictures is not None:
        coarse = low_frequencies(moments.pictures[behind, -1])
        names = tuple(f"dct {index // 4} {index % 4}" for index in range(coarse.shape[1]))
        where = episode[behind]
        targets.append(Target("background", names, coarse, (True,) * len(names), where))
        spaces["background"] = (nearest(coarse, NEIGHBORS), where)
    stack = moments.layers.shape[1]
    return Questions(observations(moments, everyone, behind), stack, fold, targets, spaces)


def probe(
    label: str,
    agent: Any,
    asked: Questions,
    rng: np.random.Generator,
    *,
    stack: int,
    without: str | None = None,
) -> list[Score]:
    """Return all scores of an agent's representations.

    Args:
        label: the run's name in the table.
        agent: anything with ``embed``.
        asked: from ``ask``.
        rng: draws the resamples of the intervals.
        stack: how many of the newest frames of a state the agent takes.
        without: a sensor that gives the agent no reading.
    """
    scores: list[Score] = []
    states = newest_frames(asked.states, stack, stack=asked.stack)
    for latent, values in represent(agent, states, without).items():
        for target in asked.targets:
            weights = bootstrap_weights(int(target.cluster.max()) + 1, rng)
            predicted = held_out_predictions(values, target.values, asked.fold)
            r2 = r_squared(target.values, predicted, target.cluster, weights)
            group = r2[:, list(target.counted)].mean(axis=1)
            scores.append(Score(label, latent, R2, target.group, "", interval(group), 0.0))
            scores += [
                Score(label, latent, R2, target.group, name, interval(r2[:, column]), 0.0)
                for column, name in enumerate(target.names)
            ]
        scores += _neighbor_scores(label, latent, values, asked, rng)
    return scores


def _neighbor_scores(
    label: str, latent: str, values: Floats, asked: Questions, rng: np.random.Generator
) -> Iterator[Score]:
    own = nearest(values, NEIGHBORS)
    chance = chance_overlap(len(values), NEIGHBORS)
    for space, (theirs, cluster) in asked.spaces.items():
        weights = bootstrap_weights(int(cluster.max()) + 1, rng)
        shared = clustered_mean(overlap(own, theirs), cluster, weights)
        yield Score(label, latent, KNN, space, "", interval(shared), chance)


def _state_targets(moments: ProbeDataset, episode: Indices) -> Iterator[Target]:
    for group in ("positions", "velocities", "task"):
        names, values = getattr(moments, group)
        moving = [i for i, spread in enumerate(values.std(axis=0)) if spread > 1e-9]
        kept = tuple(names[i] for i in moving)
        counted = tuple(group != "positions" or name in moments.visible for name in kept)
        if any(counted):
            yield Target(group, kept, values[:, moving], counted, episode)


def _shuffled_within(fold: Indices, rng: np.random.Generator) -> Indices:
    """Return a permutation that moves nobody out of its fold: held out stays held out."""
    mixed = np.empty_like(fold)
    for number in np.unique(fold):
        members = np.flatnonzero(fold == number)
        mixed[members] = rng.permutation(members)
    return mixed
