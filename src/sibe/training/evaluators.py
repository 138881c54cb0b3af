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
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import torch

from sibe.agents.protocol import Agent
from sibe.catalogue.build import build_agent
from sibe.catalogue.run_config import from_json, to_json
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.training.evaluation import MOST_ENVS, Episode, Frame, evaluate, make_eval_envs
from sibe.training.parent import end_with_parent
from sibe.training.seeding import torch_stream


class Played(NamedTuple):
    """What came of an evaluation."""

    episodes: list[Episode]
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
        """Give up everything."""


def make_evaluator(config: RunConfig, action_dim: int) -> Evaluator:
    """Return the evaluator that the config asks for."""
    if config.schedule.eval_process:
        return EvaluationProcess(config, action_dim)
    return EvaluationHere(config)


class EvaluationHere:
    """Plays at once, while the caller waits."""

    def __init__(self, config: RunConfig) -> None:
        self._envs = make_eval_envs(config.env, min(config.schedule.eval_episodes, MOST_ENVS))
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
    """Has a process of its own play."""

    def __init__(self, config: RunConfig, action_dim: int) -> None:
        context = multiprocessing.get_context("spawn")  # GL does not survive a fork
        self._connection, theirs = context.Pipe()
        arguments = (theirs, to_json(config), action_dim, os.getpid())
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        with _ctrl_c_is_ours():
            self._process.start()
        theirs.close()  # so that its death is seen as the end of the pipe
        self._receive()  # it is ready, or says why not

    def start(self, agent: Agent, seeds: Sequence[int], *, record: bool) -> None:
        """Send weights and seeds."""
        weights = io.BytesIO()
        networks = agent.policy_networks().items()
        torch.save({name: network.state_dict() for name, network in networks}, weights)
        try:
            self._connection.send((weights.getvalue(), list(seeds), record))
        except OSError as error:
            raise _gone() from error

    def finished(self) -> bool:
        """Return whether an answer has come."""
        return self._connection.poll()

    def result(self) -> Played:
        """Wait for the answer."""
        played: Played = self._receive()
        return played

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise _gone() from error
        if isinstance(answer, str):
            raise UserError(f"the process that evaluates failed: {answer}")
        return answer

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()  # it has nothing to save
        self._process.join()
        self._connection.close()


def _gone() -> UserError:
    return UserError(
        "the process that evaluates has ended (in a script, train under `if __name__ == "
        "'__main__':`): the last checkpoint is intact, continue with --resume"
    )


@contextmanager
def _ctrl_c_is_ours() -> Iterator[None]:
    """Let a process that is started here never feel Ctrl-C: the learner answers it for both."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread, where Ctrl-C does not arrive
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(connection: Connection, values: dict[str, Any], action_dim: int, learner: int) -> None:
    end_with_parent(learner)
    try:
        config = from_json(values)
        # As many as the learner has: the order of summation is part of the result.
        torch.set_num_threads(config.threads)
        generator = torch_stream(config.seed, "agent")
        agent = build_agent(config, action_dim, generator, torch.device("cpu"))
        player = EvaluationHere(config)
    except Exception as error:  # whatever it is, it is the learner that must tell it
        connection.send(_told(error))
        return
    connection.send(None)
    while True:
        try:
            weights, seeds, record = connection.recv()
            _load(agent, weights)
            player.start(agent, seeds, record=record)
            connection.send(player.result())
        except (EOFError, BrokenPipeError):  # the learner is gone
            return
        except Exception as error:
            connection.send(_told(error))


def _load(agent: Agent, weights: bytes) -> None:
    state = torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
    for name, network in agent.policy_networks().items():
        network.load_state_dict(state[name])


def _told(error: Exception) -> str:
    """Return the error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
