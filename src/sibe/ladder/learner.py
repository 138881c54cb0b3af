"""Collect, update and evaluate in memory: the training loop without files.

Streams, seeds and order are those of `sibe.training.trainer`: what is learnt here from pixels is
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
from sibe.envs.backgrounds.background import BACKGROUND_FRAME
from sibe.envs.seeding import stream_seed
from sibe.errors import UserError
from sibe.ladder.recording import Recording
from sibe.replay.chunk import Chunk
from sibe.replay.sampling import Sampling
from sibe.training.evaluation import evaluate
from sibe.training.seeding import numpy_stream, torch_stream


class Memory(Protocol):
    """What the learner knows of a replay."""

    def start(self, _frame: Any, /) -> None:
        """Begin an episode."""

    def add(
        self, _action: Any, _reward: float, _discount: float, _frame: Any, /, *, last: bool
    ) -> Any:
        """Store one agent step."""

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
        env: is learnt from.
        eval_envs: are played with the mean action.
        replay: remembers.
        keep: what of an observation the replay is given.
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
        keep: Callable[[Any], Any],
        say: Callable[[Evaluation], None],
    ) -> None:
        self.config, self.agent, self.env, self.eval_envs = config, agent, env, eval_envs
        self.replay, self._keep, self._say = replay, keep, say
        self._sampling = sampling(config)
        self._sample_rng = numpy_stream(config.seed, "replay")
        self._random_rng = numpy_stream(config.seed, "random actions")
        self._act_generator = torch_stream(config.seed, "exploration")
        self._env_step = self._agent_step = self._episode = 0
        self._next_eval = config.schedule.eval_every
        self.evaluations: list[Evaluation] = []

    def learn(self) -> list[Recording]:
        """Learn until ``env_steps`` are over; return the episodes, their observations included.

        Observations that are images are left out: ``states`` is then empty.
        """
        episodes = []
        while self._env_step < self.config.schedule.env_steps:
            episodes.append(self._play_episode())
        if not self.evaluations or self.evaluations[-1].env_step < self._env_step:
            self._evaluate()
        return episodes

    def _play_episode(self) -> Recording:
        seed = stream_seed(self.config.seed, "train", self._episode)
        shown = self._agent_step + self._episode
        state, _ = self.env.reset(seed=seed, options={BACKGROUND_FRAME: shown})
        self.replay.start(self._keep(state))
        actions, rewards, states, done, terminated = [], [], [state], False, False
        while not done:
            action = self._choose(state)
            state, reward, terminated, truncated, info = self.env.step(action)
            done = terminated or truncated
            kept = self._keep(state)
            self.replay.add(action, float(reward), float(not terminated), kept, last=done)
            actions.append(action)
            rewards.append(float(reward))
            states.append(state)
            self._agent_step += 1
            self._env_step += info["env_steps"]
            self._update_if_due()
            if self._env_step >= self._next_eval and not done:
                self._evaluate()
        self._episode += 1
        if self._env_step >= self._next_eval:
            self._evaluate()
        seen = np.stack(states) if state.ndim == 1 else np.empty((0, 0), np.float32)
        return Recording(seed, shown, np.stack(actions), tuple(rewards), seen, terminated)

    def _choose(self, state: Any) -> Any:
        if self._agent_step < self.config.schedule.initial_steps:
            actions = self.agent.action_dim
            return self._random_rng.uniform(-1, 1, actions).astype(np.float32)
        return self.agent.act(state[None], self._act_generator)[0]

    def _update_if_due(self) -> None:
        since = self._agent_step - self.config.schedule.initial_steps
        if since < 0 or since % self._sampling.every:
            return
        metrics = self.agent.update(self.replay.minibatch(self._sampling, self._sample_rng))
        losses = torch.stack([metrics[name] for name in self.agent.watched])
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
