"""How long a suite takes here: a few updates and a few env steps of one of its runs, measured.

The time of a run is its updates, plus its environment steps (training and evaluation). Methods on
SAC differ by less than tasks and presets do, so one run speaks for all of them in a suite.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from sibe.catalogue.run_config import check, to_json, updates_per_run
from sibe.config.schema import RunConfig
from sibe.storage.run_directory import RunDirectory
from sibe.training.recorder import Recorder
from sibe.training.seeding import numpy_stream
from sibe.training.trainer import Trainer

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


class Stopwatch:
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
    config = replace(
        config, schedule=replace(config.schedule, replay_capacity=_EPISODE, eval_episodes=1)
    )
    check(config)
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    with tempfile.TemporaryDirectory(prefix="sibe-speed-") as folder:
        path = Path(folder) / "run"
        with RunDirectory.create_or_open(path, to_json(config), {}) as directory:
            recorder = Recorder(directory, config.schedule.env_steps)
            trainer = Trainer(config, directory, recorder, torch.device(config.device))
            try:
                agent_step = _time_env(trainer)
                return Speed(_time_updates(trainer), agent_step)
            finally:
                trainer.close()
                recorder.close()
                torch.set_num_threads(before)


def _time_env(trainer: Trainer) -> float:
    rng = numpy_stream(1, "speed")
    state, _ = trainer.env.reset(seed=1)
    trainer.replay.start(state[..., -3:])
    started = time.perf_counter()
    steps = max(_ACTIONS, trainer.sampling.length)
    for step in range(steps):
        action = rng.uniform(-1, 1, trainer.action_dim).astype("float32")
        state, reward, terminated, _, _ = trainer.env.step(action)
        last = step == steps - 1
        trainer.replay.add(action, float(reward), float(not terminated), state[..., -3:], last=last)
    return (time.perf_counter() - started) / steps


def _time_updates(trainer: Trainer) -> float:
    size = trainer.sampling

    def update() -> None:
        trainer.agent.update(trainer.replay.minibatch(size, trainer.sample_rng))

    update()  # the first one also allocates and compiles
    started, count = time.perf_counter(), 0
    while not count or (count < _MOST and time.perf_counter() - started < _ENOUGH):
        update()
        count += 1
    if trainer.agent.device.type == "cuda":
        torch.cuda.synchronize(trainer.agent.device)
    return (time.perf_counter() - started) / count
