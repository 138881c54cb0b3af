"""The five rungs: what each replaces, and what it reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from sibe.agents.sac.agent import SAC
from sibe.analysis.representation.ridge import Floats
from sibe.catalogue.build import build_sac
from sibe.catalogue.registry import find_agent
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.errors import UserError, nearest
from sibe.ladder.alone import train_alone
from sibe.ladder.decoding import mean_r2
from sibe.ladder.fixed_episodes import FixedEpisodes, Scale, show_episodes, state_scale
from sibe.ladder.learner import Evaluation, Learner
from sibe.ladder.recording import RecordEpisodes, Recording
from sibe.ladder.stand_in import StateEncoder, replace_encoder
from sibe.ladder.state_env import Vector, make_state_env, task_quantities
from sibe.ladder.supervised import train_supervised
from sibe.ladder.table import LOSS, MEAN, R2, RETURN, RungResult
from sibe.ladder.vector_replay import VectorReplay
from sibe.training.build import build_replay
from sibe.training.environment import make_training_env
from sibe.training.evaluation import MOST_ENVS, make_eval_envs
from sibe.training.seeding import torch_stream

RUNGS = ("state", "error", "supervised", "alone", "agent")


class Ladder(NamedTuple):
    """What is asked for."""

    plain: RunConfig
    """SAC without a method"""
    whole: RunConfig
    """the same with the method"""
    updates: int
    """minibatches of the rungs supervised and alone"""
    errors: tuple[float, ...]
    """of the observation, as shares of each coordinate's standard deviation"""
    rungs: tuple[str, ...]


def check_ladder(ladder: Ladder) -> None:
    """Refuse what cannot be climbed."""
    if not ladder.rungs:
        raise UserError(f"--rungs needs a name (there are {', '.join(RUNGS)})")
    for rung in ladder.rungs:
        if rung not in RUNGS:
            raise UserError(
                f"unknown rung {rung!r}{nearest(rung, RUNGS)} (there are {', '.join(RUNGS)})"
            )
    method = ladder.whole.method
    if find_agent(method).agent != "sac":
        raise UserError(f"{method} is a standalone agent: the ladder needs a method on SAC")
    if method == "none" and "alone" in ladder.rungs:
        raise UserError(
            "method none has no loss of its own: leave the rung alone out "
            "(--rungs state error supervised agent)"
        )
    if "error" in ladder.rungs and not ladder.errors:
        raise UserError("--errors needs a number, or leave the rung error out")
    for error in ladder.errors:
        if not 0 < error < math.inf:
            raise UserError(f"--errors takes numbers above 0, not {error}")


def climb(ladder: Ladder, say: Callable[[str], None]) -> list[RungResult]:
    """Run the rungs, in the order of ``RUNGS``; return what they found.

    Episodes for the later rungs come from ``state``, which is therefore run for all but ``agent``.
    """
    check_ladder(ladder)
    names = task_quantities(ladder.whole.env)
    climber = _Climber(ladder, names, torch.device(ladder.whole.device), say)
    asked = set(ladder.rungs)
    if asked - {"agent"}:
        climber.learn_from_state()
    if "error" in asked:
        for error in ladder.errors:
            climber.learn_from_erroneous_state(error)
    if asked & {"supervised", "alone"}:
        episodes = climber.show_recordings()
        if "supervised" in asked:
            climber.learn_from_supervised(episodes)
        if "alone" in asked:
            climber.train_method_alone(episodes)
        del episodes
    if "agent" in asked:
        climber.learn_whole()
    return climber.rows


class _Climber:
    """The rungs of one ladder, and what one leaves for the next."""

    def __init__(
        self,
        ladder: Ladder,
        names: tuple[str, ...],
        device: torch.device,
        say: Callable[[str], None],
    ) -> None:
        self.ladder, self.names, self.device, self.say = ladder, names, device, say
        self.rows: list[RungResult] = []
        self.recordings: list[Recording] = []
        self.scale = Scale(np.zeros(len(names)), np.ones(len(names)))

    def learn_from_state(self) -> None:
        """Run the rung state, and keep its episodes."""
        self.recordings = self._learn_from_vector("state", 0.0)
        self.scale = state_scale(self.recordings)

    def learn_from_erroneous_state(self, error: float) -> None:
        """Run the rung error with one size of it."""
        self._learn_from_vector(f"error {error:g}", error)

    def show_recordings(self) -> FixedEpisodes:
        """Return the episodes of the rung state as images."""
        config = self.ladder.whole
        self.say(f"{len(self.recordings)} episodes of rung state are played again as images")
        shift = sampling(config).shift
        return show_episodes(config.env, self.recordings, self.scale, shift=shift)

    def learn_from_supervised(self, episodes: FixedEpisodes) -> None:
        """Run the rung supervised: regression, then SAC on the frozen encoder."""
        config = self.ladder.plain

        def report(update: int, r2: Floats) -> None:
            self._know("supervised", "c", update, r2)

        encoder = train_supervised(config, episodes, self.ladder.updates, self.device, report)
        self._learn_from_pixels("supervised", config, encoder)

    def train_method_alone(self, episodes: FixedEpisodes) -> None:
        """Run the rung alone."""

        def report(update: int, loss: float, r2: dict[str, Floats]) -> None:
            if not math.isnan(loss):
                self.rows.append(RungResult("alone", LOSS, "", "", update, loss))
                self.say(f"alone: update {update}, loss {loss:.3f}")
            for latent, values in r2.items():
                self._know("alone", latent, update, values)

        agent = self._agent(_whole_frames(self.ladder.whole), episodes.action_dim)
        train_alone(agent, episodes, self.ladder.updates, report)

    def learn_whole(self) -> None:
        """Run the rung agent."""
        self._learn_from_pixels("agent", self.ladder.whole, None)

    def _agent(self, config: RunConfig, action_dim: int) -> SAC:
        return build_sac(config, action_dim, torch_stream(config.seed, "agent"), self.device)

    def _learn_from_vector(self, rung: str, error: float) -> list[Recording]:
        config, size = self.ladder.plain, len(self.names)
        spread = error * self.scale.std
        with ExitStack() as stack:
            env, *eval_envs = (
                _closed_by(stack, make_state_env(config.env, split=split, error=spread))
                for split in ("train", *("eval",) * _eval_envs(config))
            )
            action_dim = _action_dim(env)
            agent = self._agent(config, action_dim)
            generator = torch_stream(config.seed, "state encoder")
            encoder = StateEncoder(size, config.encoder.features, generator)
            replace_encoder(agent, encoder)

            def observe(vector: Vector) -> Vector:
                encoder.moments.update(torch.from_numpy(vector).to(self.device))
                return vector

            recorder = RecordEpisodes(gym.wrappers.TransformObservation(env, observe, None))
            replay = VectorReplay(config.schedule.replay_capacity, size, action_dim)
            say = self._teller(rung)
            Learner(config, agent, recorder, eval_envs, replay, stack=1, say=say).learn()
            return recorder.recordings

    def _learn_from_pixels(
        self, rung: str, config: RunConfig, encoder: torch.nn.Module | None
    ) -> None:
        """Learn with SAC's own encoder, or with another that stays as it is."""
        with ExitStack() as stack:
            env = _closed_by(stack, make_training_env(config.env))
            eval_envs = make_eval_envs(config.env, _eval_envs(config))
            for eval_env in eval_envs:
                _closed_by(stack, eval_env)
            agent = self._agent(config, _action_dim(env))
            if encoder is not None:
                replace_encoder(agent, encoder)
            look = None if agent.foreground is None else agent.foreground.masked
            replay, say = build_replay(config, env, look), self._teller(rung)
            frames = config.env.stack
            Learner(config, agent, env, eval_envs, replay, stack=frames, say=say).learn()

    def _teller(self, rung: str) -> Callable[[Evaluation], None]:
        def tell(found: Evaluation) -> None:
            self.rows.append(RungResult(rung, RETURN, "", "", found.env_step, found.episode_return))
            self.say(f"{rung}: env step {found.env_step}, return {found.episode_return:.1f}")

        return tell

    def _know(self, rung: str, latent: str, update: int, r2: Floats) -> None:
        mean = mean_r2(r2)
        found = [(MEAN, mean), *zip(self.names, map(float, r2), strict=True)]
        self.rows += [RungResult(rung, R2, latent, name, update, value) for name, value in found]
        self.say(f"{rung}: update {update}, R² of the state from {latent} {mean:.2f}")


def _eval_envs(config: RunConfig) -> int:
    return min(config.schedule.eval_episodes, MOST_ENVS)


def _closed_by(stack: ExitStack, env: Any) -> Any:
    stack.callback(env.close)
    return env


def _action_dim(env: Any) -> int:
    return int(env.action_space.shape[0])


def make_ladder(
    plain: RunConfig,
    whole: RunConfig,
    *,
    env_steps: int,
    updates: int,
    errors: tuple[float, ...],
    rungs: tuple[str, ...],
) -> Ladder:
    """Return the ladder of two configs, with the length of all rungs that act."""
    plain, whole = (
        replace(config, schedule=replace(config.schedule, env_steps=env_steps))
        for config in (plain, whole)
    )
    return Ladder(_whole_frames(plain), whole, updates, errors, rungs)


def _whole_frames(config: RunConfig) -> RunConfig:
    """Return the config of an agent that does not look for the robot."""
    return replace(config, encoder=replace(config.encoder, foreground=False))
