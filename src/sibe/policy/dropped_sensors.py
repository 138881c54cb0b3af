"""A policy without some of its readings: `sibe eval --drop`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from sibe.agents.protocol import Actions, Missing, Policy
from sibe.envs.sensors import Observation, count
from sibe.policy.trained_policy import TrainedPolicy
from sibe.training.seeding import numpy_stream


def with_drops(policy: TrainedPolicy, shares: Mapping[str, float], seed: int) -> Policy:
    """Return a policy that plays with readings missing at random, each step and sensor apart.

    A missing sensor's encoding is what stood for it in training, with ``--sensor-dropout`` or
    prediction across sensors, and zero without. All stacked frames of a step are missing at once.

    Args:
        policy: the policy that sees the rest.
        shares: of readings that are missing, 0 to 1, by sensor.
        seed: which of them.
    """
    names = policy.config.env.seen.names
    return _Dropping(
        policy.agent.policy(),
        np.array([shares.get(name, 0.0) for name in names]),
        numpy_stream(seed, "dropped sensors"),
    )


class _Dropping:
    """A policy; ``shares [K]`` of its readings are missing, drawn by ``rng``."""

    def __init__(
        self, policy: Policy, shares: npt.NDArray[np.float64], rng: np.random.Generator
    ) -> None:
        self._policy, self._shares, self._rng = policy, shares, rng

    def reset(self) -> None:
        """Begin new episodes."""
        self._policy.reset()

    def act(
        self,
        obs: Observation,
        generator: torch.Generator | None,
        episodes: Sequence[int] | None = None,
        missing: Missing | None = None,
    ) -> Actions:
        """Return actions without the readings that are drawn here, and those ``missing`` before."""
        drawn = self._rng.random((count(obs), len(self._shares))) < self._shares
        missing = drawn if missing is None else drawn | missing
        return self._policy.act(obs, generator, episodes, missing)
