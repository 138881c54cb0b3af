"""Who plays the evaluation: the learner itself, or a process beside it while learning goes on.

The process pays where a core is free: with a GPU, or with fewer threads than cores. It holds
environments and an agent on the CPU, is sent the weights of the policy and seeds, and returns the
episodes: to a learner on the CPU the same, bit for bit, as if it had stopped and played them.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from sibe.agents.protocol import Agent
from sibe.catalogue.build import build_agent
from sibe.catalogue.run_config import from_json, to_json
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.training.determinism import compute_with
from sibe.training.evaluation import MOST_ENVS, EvalEpisode, Frame, evaluate, make_eval_envs
from sibe.training.own_envs import OwnEnvs
from sibe.training.parent import end_with_parent
from sibe.training.seeding import torch_stream

T = TypeVar("T")


class Played(NamedTuple):
    """What came of an evaluation."""

    episodes: list[EvalEpisode]
    frames: list[Frame]
    """of the first episode, if they were asked for"""


class Evaluator(Protocol):
    """Plays one evaluation at a time: ``start``, then ``result``."""

    def start(self, agent: Agent, seeds: Sequence[int], *, record: bool) -> None:
        """Play an episode per seed with the agent's present weights; record the first or not."""

    def finished(self) -> bool:
        """Whether ``result`` would not have to wait."""

    def result(self) -> Played:
        """Return what was started, once."""

    def close(self) -> None:
        """Release all resources."""


def make_evaluator(config: RunConfig, agent: Agent, own: OwnEnvs | None = None) -> Evaluator:
    """Return the evaluator that the config asks for; of ``agent`` it copies the sizes."""
    if config.schedule.eval_process:
        if own is not None:
            raise UserError(
                "eval_process needs an environment by name: register yours with Gymnasium and "
                "train on its id, module:Name-v0"
            )
        return EvaluationProcess(config, agent.action_dim, agent.state_size)
    return EvaluationHere(config, own)


class EvaluationHere:
    """Plays at once, while the caller waits."""

    def __init__(self, config: RunConfig, own: OwnEnvs | None = None) -> None:
        count = min(config.schedule.eval_episodes, MOST_ENVS)
        self._envs = make_eval_envs(config.env, count, own)
        self._played: Played | None = None

    def start(self, agent: Agent, seeds: Sequence[int], *, record: bool) -> None:
        """Play."""
        frames: list[Frame] = []
        # A policy of its own: that of the running episode must not lose its memory.
        episodes = evaluate(agent.policy(), self._envs, seeds, record=frames if record else None)
        self._played = Played(episodes, frames)

    def finished(self) -> bool:
        """Return whether something was played."""
        return self._played is not None

    def result(self) -> Played:
        """Return what was played."""
        played, self._played = self._played, None
        assert played is not None
        return played

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()


class EvaluationProcess:
    """Plays in a process of its own, a pool of one worker."""

    def __init__(self, config: RunConfig, action_dim: int, state_size: int = 0) -> None:
        self._pool = ProcessPoolExecutor(
            max_workers=1,
            mp_context=multiprocessing.get_context("spawn"),  # GL does not survive a fork
            initializer=end_with_parent,
            initargs=(os.getpid(),),
        )
        self._future: Future[Played] | None = None
        try:
            with _ctrl_c_is_ours():
                ready = self._pool.submit(_prepare, to_json(config), action_dim, state_size)
            self._pid = _outcome(ready)
        except BaseException:
            self._pool.shutdown()
            raise

    def start(self, agent: Agent, seeds: Sequence[int], *, record: bool) -> None:
        """Send weights and seeds."""
        # Bytes, not tensors: a pool moves tensors to shared memory, where learning would go on
        # to write them while they are evaluated.
        weights = io.BytesIO()
        networks = agent.policy_networks().items()
        torch.save({name: network.state_dict() for name, network in networks}, weights)
        try:
            self._future = self._pool.submit(_play, weights.getvalue(), list(seeds), record)
        except BrokenProcessPool as error:
            raise _gone() from error

    def finished(self) -> bool:
        """Return whether the episodes are played."""
        return self._future is not None and self._future.done()

    def result(self) -> Played:
        """Wait for the episodes."""
        future, self._future = self._future, None
        assert future is not None
        return _outcome(future)

    def close(self) -> None:
        """End the process, whatever it is doing: it has nothing to save."""
        for child in multiprocessing.active_children():
            if child.pid == self._pid:
                child.kill()
        self._pool.shutdown(cancel_futures=True)


def _outcome(future: Future[T]) -> T:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise _gone() from error
    except Exception as error:  # whatever it is, it is the learner that must report it
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"the process that evaluates failed: {reason}") from error


def _gone() -> UserError:
    return UserError(
        "the process that evaluates has ended (in a script, train under `if __name__ == "
        "'__main__':`): the last checkpoint is intact, continue with --resume"
    )


@contextmanager
def _ctrl_c_is_ours() -> Iterator[None]:
    """Start processes with SIGINT ignored: the parent handles Ctrl-C for both."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread, where Ctrl-C does not arrive
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Worker(NamedTuple):
    agent: Agent
    player: EvaluationHere


_worker: _Worker | None = None
"""in the process that evaluates: what it plays with"""


def _prepare(values: dict[str, Any], action_dim: int, state_size: int) -> int:
    """Make the agent and the environments; return the id of the process."""
    global _worker
    config = from_json(values)
    # As the learner: the order of summation is part of the result.
    compute_with(config.threads)
    generator = torch_stream(config.seed, "agent")
    agent = build_agent(config, action_dim, generator, torch.device("cpu"), state_size)
    _worker = _Worker(agent, EvaluationHere(config))
    return os.getpid()


def _play(weights: bytes, seeds: list[int], record: bool) -> Played:
    assert _worker is not None
    agent, player = _worker
    state = torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
    for name, network in agent.policy_networks().items():
        network.load_state_dict(state[name])
    player.start(agent, seeds, record=record)
    return player.result()
