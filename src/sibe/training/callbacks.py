"""Callbacks: what a program does while a run goes on, and how it stops one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sibe.training.evaluation import EvalEpisode

if TYPE_CHECKING:
    from sibe.training.trainer import Trainer


class Evaluation(NamedTuple):
    """An evaluation that has been played."""

    env_step: int
    """of training, when it began"""
    episodes: Sequence[EvalEpisode]
    """each with ``seed``, ``episode_return`` and ``env_steps``"""

    @property
    def mean(self) -> float:
        """Mean return."""
        return sum(episode.episode_return for episode in self.episodes) / len(self.episodes)


class Callback:
    """Is told of what happens in a run; override what you need.

    A method that returns False (not None) stops the run: the episode is played out, a checkpoint
    is written, and ``sibe.train(resume=RUN)`` goes on from there, as if it had not been stopped.
    Whatever a method raises ends the run at once, and resuming goes back to the last checkpoint.

    Each method is given the ``Trainer``: its ``config``, ``env_step``, ``agent_step``, ``episode``
    (how many were finished), ``agent`` and ``directory.path``. Reading them changes nothing;
    drawing random numbers from its generators, or changing its parts, changes the result.
    """

    def after_step(self, training: Trainer) -> bool | None:
        """Take note of an agent step, with the update that may have followed it."""

    def after_episode(self, training: Trainer, row: Mapping[str, Any]) -> bool | None:
        """Take note of a training episode: ``row`` is what train.csv was given."""

    def after_evaluation(self, training: Trainer, evaluation: Evaluation) -> bool | None:
        """Take note of an evaluation."""

    def after_checkpoint(self, training: Trainer) -> bool | None:
        """Take note of a checkpoint at ``training.env_step``."""
