"""Training as it is done, on both sides: act, step, store, sample, update.

``OurTraining`` is the inner loop of the trainer without its logs, so that it can be run for a given
number of steps; ``measure_run`` is the trainer itself, whole, with every part of it timed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sibe.bench.stopwatch import CHECKPOINT, EVALUATION, LOOP, Stopwatch, watch_loop
from sibe.bench.workloads import (
    episode_steps,
    make_agent,
    make_reference,
    our_replay,
    period,
    reference_replay,
)
from sibe.catalogue.run_config import sampling, to_json
from sibe.config.schema import RunConfig

Work = Callable[[], object]


class OurTraining:
    """Our environment, replay and agent, one update per agent step."""

    def __init__(self, config: RunConfig, stored: int) -> None:
        from sibe.training.collector import Collector
        from sibe.training.environment import make_training_env

        self.sampling = sampling(config)
        self.agent, self.replay = make_agent(config), our_replay(config, stored)
        self.collector = Collector(
            make_training_env(config.env),
            self.agent.policy(),
            self.replay,
            stack=config.env.stack,
            seed=0,
            initial_steps=0,
        )
        self.sample_rng = np.random.default_rng(0)

    def step(self) -> None:
        """Make one agent step and one update."""
        self.collector.step()
        self.agent.update(self.replay.minibatch(self.sampling, self.sample_rng))


class ReferenceTraining:
    """The reference environment, replay and agent, one update per agent step."""

    def __init__(self, config: RunConfig, stored: int) -> None:
        from sibe.bench.reference.environment import StockPixels

        self.sampling, self.rng = sampling(config), np.random.default_rng(0)
        self.env = StockPixels(config.env, self.rng)
        self.agent = make_reference(config)
        self.replay = reference_replay(config, stored, stored + stored // 2)
        self.state = self.env.reset()

    def step(self) -> None:
        """Make one agent step and one update."""
        action, state = self.agent.act(self.state), self.state
        self.state, reward, over = self.env.step(action)
        self.replay.add(state, action, reward, 1.0, self.state, last=over)
        drawn = self.sampling
        self.agent.update(self.replay.sample(drawn.batch, drawn.length, drawn.shift, self.rng))
        if over:
            self.state = self.env.reset()


def our_training(config: RunConfig, stored: int) -> Work:
    """One period of agent steps of ours."""
    return _steps(OurTraining(config, stored).step, config)


def reference_training(config: RunConfig, stored: int) -> Work:
    """One period of agent steps of the reference."""
    return _steps(ReferenceTraining(config, stored).step, config)


def _steps(step: Callable[[], None], config: RunConfig) -> Work:
    def steps() -> None:
        for _ in range(period(config)):
            step()

    return steps


def step_parts(config: RunConfig, stored: int, steps: int) -> dict[str, float]:
    """Return the seconds per agent step of ours by part, over ``steps`` of them."""
    loop, watch = OurTraining(config, stored), Stopwatch()
    watch_loop(loop, watch)
    for _ in range(period(config)):
        loop.step()
    watch.clear(LOOP)
    for _ in range(steps):
        loop.step()
    watch.switch(LOOP)
    return {part: seconds / steps for part, seconds in watch.seconds.items()}


def measure_run(config: RunConfig, episodes: int) -> dict[str, float]:
    """Run the trainer; return the seconds per agent step by part, as in a long run.

    One episode of random actions, one of learning to warm up, ``episodes`` that count, then an
    evaluation and a checkpoint, which are shared out over the steps between two of them.
    """
    from sibe.storage.run_directory import RunDirectory
    from sibe.training.build import build_parts
    from sibe.training.evaluators import make_evaluator
    from sibe.training.recorder import Recorder
    from sibe.training.trainer import Trainer

    short, learning = _short(config, episodes), episodes * episode_steps(config)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sibe-bench-")))
        quiet = stack.enter_context(Path(os.devnull).open("w"))
        stack.enter_context(contextlib.redirect_stdout(quiet))
        run = stack.enter_context(RunDirectory.create_or_open(folder / "run", to_json(short), {}))
        recorder = Recorder(run, short.schedule.env_steps)
        stack.callback(recorder.close)
        parts = build_parts(short, torch.device("cpu"))
        evaluator = make_evaluator(short, parts.agent)
        trainer = Trainer(short, *parts, recorder, evaluator, run)
        stack.callback(trainer.close)
        watch = _watch_trainer(trainer, short, 2 * episode_steps(config))
        trainer.run()
        watch.switch(LOOP)
    return _shared_out(watch.seconds, config, learning)


def _short(config: RunConfig, episodes: int) -> RunConfig:
    length = episode_steps(config)
    env_steps = (2 + episodes) * length * config.env.action_repeat
    schedule = replace(
        config.schedule,
        env_steps=env_steps,
        initial_steps=length,
        eval_every=2 * env_steps,  # one at the end all the same
        checkpoint_every=2 * env_steps,
        video=False,
    )
    return replace(config, schedule=schedule)


def _watch_trainer(trainer: Any, config: RunConfig, warm: int) -> Stopwatch:
    """Time the parts of ``trainer``, from its agent step ``warm`` on."""
    watch = Stopwatch()
    watch_loop(trainer, watch)
    watch.wrap(trainer, "evaluate", EVALUATION, LOOP)
    watch.wrap(trainer, "save", CHECKPOINT, LOOP)
    tick = trainer.recorder.tick

    def tick_and_clear(env_step: int, agent_step: int, updates: int) -> None:
        tick(env_step, agent_step, updates)
        if agent_step == warm:
            watch.clear(LOOP)

    trainer.recorder.tick = tick_and_clear
    return watch


def _shared_out(seconds: dict[str, float], config: RunConfig, steps: int) -> dict[str, float]:
    schedule, repeat = config.schedule, config.env.action_repeat
    per = {
        EVALUATION: schedule.eval_every // repeat,
        CHECKPOINT: schedule.checkpoint_every // repeat,
    }
    return {part: total / per.get(part, steps) for part, total in seconds.items()}
