"""A policy whose sensors freeze or turn noisy: `sibe eval --freeze` and `--noisy`.

Unlike with a missing sensor, the policy is not told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sibe.agents.protocol import Actions, Missing, Policy
from sibe.envs.sensors import PIXELS, Observation, count
from sibe.training.seeding import numpy_stream

Reading = npt.NDArray[Any]


class DistortedSensors:
    """A policy that sees readings repeated or with noise, each step and sensor apart.

    Args:
        policy: sees what is left.
        freeze: share of the steps at which a sensor repeats what it showed last, 0 to 1, by
            sensor; the first reading of an episode is always new. Of pixels, all stacked frames.
        noise: standard deviation of Gaussian noise by sensor: of pixels as a share of the range
            0 … 255, of a vector in its own units.
        seed: of all that is drawn.
    """

    def __init__(
        self, policy: Policy, freeze: Mapping[str, float], noise: Mapping[str, float], seed: int
    ) -> None:
        self._policy, self._freeze, self._noise = policy, freeze, noise
        self._rng = numpy_stream(seed, "distorted sensors")
        self._last: dict[tuple[str, int], Reading] = {}  # by sensor and episode

    def reset(self) -> None:
        """Begin new episodes."""
        self._last.clear()
        self._policy.reset()

    def act(
        self,
        obs: Observation,
        generator: torch.Generator | None,
        episodes: Sequence[int] | None = None,
        missing: Missing | None = None,
    ) -> Actions:
        """Return actions for what the sensors show in place of ``obs``."""
        rows = range(count(obs)) if episodes is None else episodes
        if not isinstance(obs, dict):
            shown = self._shown(PIXELS, obs, rows)
            return self._policy.act(shown, generator, episodes, missing)
        readings = {name: self._shown(name, part, rows) for name, part in obs.items()}
        return self._policy.act(readings, generator, episodes, missing)

    def _shown(self, name: str, reading: Reading, episodes: Sequence[int]) -> Reading:
        if std := self._noise.get(name, 0.0):
            reading = self._noisy(reading, std)
        if share := self._freeze.get(name, 0.0):
            frozen = self._rng.random(len(reading)) < share
            keys = [(name, episode) for episode in episodes]
            reading = np.stack(
                [
                    self._last.get(key, new) if stuck else new
                    for key, new, stuck in zip(keys, reading, frozen, strict=True)
                ]
            )
            self._last |= zip(keys, reading, strict=True)
        return reading

    def _noisy(self, reading: Reading, std: float) -> Reading:
        noise = self._rng.standard_normal(reading.shape, np.float32)
        if reading.dtype == np.uint8:
            pixels: Reading = (reading + np.float32(255 * std) * noise).round().clip(0, 255)
            return pixels.astype(np.uint8)
        vector: Reading = reading + np.float32(std) * noise
        return vector
