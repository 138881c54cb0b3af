"""What the training loop, evaluation and ``load_policy`` know of an agent.

SAC with a method plugged in is one, Plan2Explore another. A policy is an object with a memory,
because an agent with a recurrent model has to remember the episode it is in; several episodes may
be played in lock step, and those that end drop out of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sibe.envs.sensors import Observation
from sibe.foreground.learner import ForegroundLearner
from sibe.replay.chunk import Chunk

Metrics = dict[str, Tensor]
Actions = npt.NDArray[np.float32]
Missing = npt.NDArray[np.bool_]
"""``[N, K]``: which of K sensors gave no reading"""


class Policy(Protocol):
    """Chooses actions, and remembers of its episodes what it needs for that."""

    def reset(self) -> None:
        """Begin new episodes: drop the memory of the last ones."""

    def act(
        self,
        obs: Observation,
        generator: torch.Generator | None,
        episodes: Sequence[int] | None = None,
        missing: Missing | None = None,
    ) -> Actions:
        """Return actions ``[N, A]`` for states uint8 ``[N, H, W, C]``, one of each episode.

        With several sensors, states are a dict by sensor, a vector float32 ``[N, S]``.
        A generator makes this the policy that collects, and draws all it leaves to chance; None
        makes it the one that is evaluated, without any chance. ``episodes`` says which of the
        episodes begun since ``reset`` the rows belong to, in ascending order (default: 0 … N-1);
        those that are left out have ended. ``missing`` says which sensors, in the order of
        ``Sensors.names``, gave no reading; what stands in their place in ``obs`` is not looked at.
        """


class Agent(Protocol):
    """Learns from chunks of experience. The docstrings below are the contract."""

    device: torch.device
    action_dim: int
    state_size: int
    """numbers of the sensor ``state``; 0 if there is none"""
    updates: int
    """updates made so far"""
    foreground: ForegroundLearner | None
    """masks the background of what the agent sees, if it learns to"""

    @property
    def must_be_finite(self) -> Sequence[str]:
        """Metrics that must stay finite for the run to go on."""

    def policy(self) -> Policy:
        """Return a policy that acts with the agent's weights as they are whenever it is asked."""

    def update(self, chunk: Chunk) -> Metrics:
        """Learn from one minibatch, of the size its config's ``Sampling`` says; return metrics."""

    def embed(self, obs: Observation, missing: Missing | None = None) -> dict[str, Tensor]:
        """Return representations ``[N, …]`` of single states by name, for grids and probes."""

    def metric_names(self) -> list[str]:
        """Return the names of all metrics of an update, in order."""

    def networks(self) -> dict[str, nn.Module]:
        """Return all networks by name."""

    def policy_networks(self) -> dict[str, nn.Module]:
        """Return those of them that acting and embedding need: what an export holds."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything an exact continuation needs, as plain values and tensors."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` returned."""


class Act(Protocol):
    """States and a generator, or None for the mean action -> actions."""

    def __call__(
        self, obs: Observation, generator: torch.Generator | None, missing: Missing | None = None
    ) -> Actions:
        """Return actions ``[N, A]`` for states uint8 ``[N, H, W, C]``."""


class MemorylessPolicy:
    """The policy of an agent that needs to see only the present state."""

    def __init__(self, act: Act) -> None:
        self._act = act

    def reset(self) -> None:
        """No-op: the policy is stateless."""

    def act(
        self,
        obs: Observation,
        generator: torch.Generator | None,
        episodes: Sequence[int] | None = None,
        missing: Missing | None = None,
    ) -> Actions:
        """Return actions ``[N, A]``; which episode a state is of makes no difference."""
        return self._act(obs, generator, missing)
