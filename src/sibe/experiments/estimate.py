"""How long a suite takes here: a few updates and a few env steps of one of its runs, measured.

The time of a run is its updates, plus its environment steps (training and evaluation). Methods on
SAC differ by less than tasks and presets do, so one run speaks for all of them in a suite.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch

from sibe.catalogue.run_config import check, sampling, updates_per_run
from sibe.config.schema import RunConfig
from sibe.kernels.matrix_products import use_onednn
from sibe.training.build import Parts, build_parts
from sibe.training.collector import Collector
from sibe.training.seeding import numpy_stream

_EPISODE = 1000  # env steps of a DeepMind Control episode
_ACTIONS = 40  # agent steps that are timed, and fill the replay
_ENOUGH = 5.0  # seconds after which no further update is timed
_MOST = 8  # updates that are timed; even, because the actor learns at every second


class Speed(NamedTuple):
    """What was measured on this machine."""

    update: float
    """seconds per gradient update"""
    agent_step: float
    """seconds per agent step of the environment"""


def run_seconds(config: RunConfig, speed: Speed) -> float:
    """Return the estimated time of a whole run."""
    schedule, repeat = config.schedule, config.env.action_repeat
    evaluations = math.ceil(schedule.env_steps / schedule.eval_every)
    env_steps = schedule.env_steps + evaluations * schedule.eval_episodes * _EPISODE
    return updates_per_run(config) * speed.update + env_steps / repeat * speed.agent_step


class SpeedMeter:
    """Measures configs; those that cost the same are measured once."""

    def __init__(self, measure: Callable[[RunConfig], Speed] | None = None) -> None:
        self._measure = measure or measure_speed
        self._known: dict[RunConfig, Speed] = {}

    def speed(self, config: RunConfig) -> Speed:
        """Return the speed of a run of ``config``."""
        # The background and the length of a run do not change what an update costs.
        alike = replace(
            config,
            seed=1,
            env=replace(config.env, background="clean", clips=None),
            schedule=replace(config.schedule, env_steps=_EPISODE, eval_episodes=1),
        )
        if alike not in self._known:
            self._known[alike] = self._measure(alike)
        return self._known[alike]


def measure_speed(config: RunConfig) -> Speed:
    """Time some updates and env steps of the agent that ``config`` trains."""
    config = replace(config, schedule=replace(config.schedule, replay_capacity=_EPISODE))
    check(config)
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    use_onednn()
    parts = build_parts(config, torch.device(config.device))
    try:
        agent_step = _time_env(config, parts)
        return Speed(_time_updates(config, parts), agent_step)
    finally:
        parts.env.close()
        torch.set_num_threads(before)


def _time_env(config: RunConfig, parts: Parts) -> float:
    """Time random agent steps; they leave enough in the replay for an update."""
    collector = Collector(
        parts.env,
        parts.agent.policy(),
        parts.replay,
        stack=config.env.stack,
        seed=config.seed,
        initial_steps=_EPISODE,
    )
    length, steps = sampling(config).length, 0
    started = time.perf_counter()
    # Episodes that end early may be shorter than a chunk.
    while steps < _ACTIONS or (steps < _EPISODE and not parts.replay.can_sample(length)):
        collector.step()
        steps += 1
    return (time.perf_counter() - started) / steps


def _time_updates(config: RunConfig, parts: Parts) -> float:
    size, rng = sampling(config), numpy_stream(config.seed, "replay")

    def update() -> None:
        parts.agent.update(parts.replay.minibatch(size, rng))

    update()  # the first one also allocates and compiles
    started, count = time.perf_counter(), 0
    while not count or (count < _MOST and time.perf_counter() - started < _ENOUGH):
        update()
        count += 1
    if parts.agent.device.type == "cuda":
        torch.cuda.synchronize(parts.agent.device)
    return (time.perf_counter() - started) / count
