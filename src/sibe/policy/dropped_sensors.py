"""A policy whose sensors fail: how `sibe eval --drop` finds out what it does without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from sibe.agents.protocol import Actions
from sibe.agents.sac.agent import SAC
from sibe.envs.sensors import Observation, Sensors
from sibe.errors import UserError, nearest
from sibe.policy.trained_policy import TrainedPolicy
from sibe.training.seeding import numpy_stream


def parse_drops(words: Sequence[str], sensors: Sensors) -> dict[str, float]:
    """Return the share of readings that are missing by sensor, from ``sensor=share`` each.

    ``pixels`` stands for all cameras.
    """
    shares: dict[str, float] = {}
    for word in words:
        name, equals, number = word.partition("=")
        try:
            share = float(number) if equals else 1.0
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise UserError(f"--drop {word}: give a sensor and a share from 0 to 1, as pixels=0.3")
        meant = sensors.views if name == "pixels" else (name,)
        if not meant or not set(meant) <= set(sensors.names):
            raise UserError(
                f"--drop {word}: the agent has no sensor {name!r}{nearest(name, sensors.names)} "
                f"(it has {', '.join(sensors.names)})"
            )
        shares |= dict.fromkeys(meant, share)
    return shares


class DroppedSensors:
    """Plays with readings missing at random, each step and sensor apart.

    A missing sensor's encoding is what it was replaced by in training with ``--sensor-dropout``,
    and zero without.

    Args:
        policy: an agent of SAC.
        shares: of readings that are missing, 0 to 1, by sensor.
        seed: which of them.
    """

    def __init__(self, policy: TrainedPolicy, shares: Mapping[str, float], seed: int) -> None:
        if not isinstance(policy.agent, SAC):
            raise UserError(f"--drop does not apply to {policy.config.method}, a standalone agent")
        self._agent = policy.agent
        names = policy.config.env.seen.names
        self._shares = np.array([shares.get(name, 0.0) for name in names])
        self._rng = numpy_stream(seed, "dropped sensors")

    def reset(self) -> None:
        """No-op: the policy is stateless."""

    def act(
        self,
        obs: Observation,
        generator: torch.Generator | None,
        episodes: Sequence[int] | None = None,
    ) -> Actions:
        """Return actions ``[N, A]``."""
        first = next(iter(obs.values())) if isinstance(obs, dict) else obs
        missing = self._rng.random((len(first), len(self._shares))) < self._shares
        return self._agent.act(obs, generator, missing)
