"""Collect, update and evaluate in memory: the training loop without files.

Streams, seeds and order are those of `sibe.training.trainer`: what is learned here from pixels is
what `sibe train` learns with the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import torch

from sibe.agents.sac.agent import SAC
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.envs.seeding import stream_seed
from sibe.errors import UserError
from sibe.replay.chunk import Chunk
from sibe.replay.replay import Replay
from sibe.replay.sampling import Sampling
from sibe.training.collector import Collector, ReplayWriter
from sibe.training.evaluation import evaluate
from sibe.training.foreground import train_foreground_if_due
from sibe.training.seeding import numpy_stream


class Memory(ReplayWriter, Protocol):
    """What the learner knows of a replay."""

    def minibatch(self, _wanted: Sampling, _rng: np.random.Generator, /) -> Chunk:
        """Draw what an update asks for."""


class Evaluation(NamedTuple):
    """The mean return of an evaluation."""

    env_step: int
    episode_return: float


class Learner:
    """An agent, its environments and its replay.

    Args:
        config: how long, how often; its seed.
        agent: learns.
        env: is learned from; observes single frames, or vectors.
        eval_envs: are played with the mean action.
        replay: stores what ``env`` shows.
        stack: how many observations of ``env`` make a state.
        say: is told of every evaluation.
    """

    def __init__(
        self,
        config: RunConfig,
        agent: SAC,
        env: gym.Env[Any, Any],
        eval_envs: Sequence[gym.Env[Any, Any]],
        replay: Memory,
        *,
        stack: int,
        say: Callable[[Evaluation], None],
    ) -> None:
        self.config, self.agent, self.eval_envs = config, agent, eval_envs
        self.replay, self._say = replay, say
        self._collector = Collector(
            env,
            agent.policy(),
            replay,
            stack=stack,
            seed=config.seed,
            initial_steps=config.schedule.initial_steps,
        )
        self._sampling = sampling(config)
        self._sample_rng = numpy_stream(config.seed, "replay")
        self._next_eval = config.schedule.eval_every
        self.evaluations: list[Evaluation] = []

    def learn(self) -> None:
        """Learn until ``env_steps`` are over and an episode has ended; evaluate on the way."""
        finished = None
        while self._env_step < self.config.schedule.env_steps or finished is None:
            finished = self._collector.step()
            since = self._collector.agent_step - self.config.schedule.initial_steps
            if since >= 0 and since % self._sampling.every == 0:
                for _ in range(self._sampling.updates):
                    self._update()
            if self._env_step >= self._next_eval:
                self._evaluate()
        if not self.evaluations or self.evaluations[-1].env_step < self._env_step:
            self._evaluate()

    @property
    def _env_step(self) -> int:
        return self._collector.env_step

    def _update(self) -> None:
        if isinstance(self.replay, Replay):
            train_foreground_if_due(self.agent, self.replay, self._env_step)
        metrics = self.agent.update(self.replay.minibatch(self._sampling, self._sample_rng))
        losses = torch.stack([metrics[name] for name in self.agent.must_be_finite])
        if not bool(torch.isfinite(losses).all()):
            raise UserError(
                f"the losses became non-finite at env_step {self._env_step}: "
                "leave this rung out, or choose another preset"
            )

    def _evaluate(self) -> None:
        while self._next_eval <= self._env_step:
            self._next_eval += self.config.schedule.eval_every
        seeds = [
            stream_seed(self.config.seed, "eval", self._env_step, i)
            for i in range(self.config.schedule.eval_episodes)
        ]
        played = evaluate(self.agent.policy(), self.eval_envs, seeds)
        mean = float(np.mean([episode.episode_return for episode in played]))
        self.evaluations.append(Evaluation(self._env_step, mean))
        self._say(self.evaluations[-1])
