"""One representation of several sensors: an encoder for each, joined into one c.

A sensor that gives no reading is replaced by a vector of its own, which is learned where sensors
are dropped in training, or seen alone, and zero where they never are. What c would be if one sensor
alone were there costs no more than the last layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sibe.nn.init import orthogonal_
from sibe.nn.mlp import mlp

HIDDEN = 128
"""Width of the network that encodes a vector."""
_SHARED = "cameras"


class SensorEncoder(nn.Module):
    """φ: readings by sensor -> ``[..., features]``; an encoder each, FC, LayerNorm (, tanh).

    Args:
        cameras: an encoder of pictures by sensor; one object for several of them is one network.
        vectors: the size S of a vector by sensor.
        features: D, also of each sensor's own encoding.
        tanh: squash c.
        generator: draws the initial weights.
    """

    def __init__(
        self,
        cameras: Mapping[str, nn.Module],
        vectors: Mapping[str, int],
        *,
        features: int = 50,
        tanh: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.names = tuple(sorted((*cameras, *vectors)))
        self.features, self.tanh = features, tanh
        shared = len({id(camera) for camera in cameras.values()}) < len(cameras)
        # Registered once, so that a file of its weights holds them once.
        self._place = {name: _SHARED if shared and name in cameras else name for name in self.names}
        self.encoders = nn.ModuleDict({self._place[name]: one for name, one in cameras.items()})
        for name, size in vectors.items():
            self.encoders[name] = mlp(
                (size, HIDDEN, features), layer_norm=True, generator=generator
            )
        self.absent = nn.Parameter(torch.zeros(len(self.names), features))
        self.project = nn.Linear(len(self.names) * features, features)
        self.norm = nn.LayerNorm(features)
        orthogonal_(self.project, generator)
        self._cameras = frozenset(cameras)

    def forward(
        self,
        readings: Mapping[str, Tensor],
        missing: Tensor | None = None,
        *,
        apart: bool = False,
        still: int = 0,
    ) -> Tensor:
        """Return c ``[T, B, D]`` of T states; pictures as their encoder takes them.

        Args:
            readings: by sensor; a vector is float32 ``[T, B, S]``.
            missing: bool ``[T, B, K]``: which of the K sensors, in the order of ``names``, are not
                there; None for none.
            apart: also return what c is with each sensor alone: ``[1 + K, T, B, D]``.
            still: after the T states come the first ``still`` of them once more as still pictures:
                what the newest frame of each camera alone tells.
        """
        encoded = [self._encode(name, readings[name], still) for name in self.names]
        encodings = torch.stack(encoded, dim=-2)
        c = self._join(encodings, missing)
        if not apart:
            return c
        others = ~torch.eye(len(self.names), dtype=torch.bool, device=c.device)
        alone = self._join(encodings[None], others[:, None, None])
        return torch.cat((c[None], alone))

    def single(self, readings: Mapping[str, Tensor], missing: Tensor | None = None) -> Tensor:
        """Encode N states that do not overlap -> ``[N, D]``; ``missing`` is ``[N, K]``."""
        encoded = [self._encode(name, readings[name]) for name in self.names]
        return self._join(torch.stack(encoded, dim=-2), missing)

    def _encode(self, name: str, reading: Tensor, still: int | None = None) -> Tensor:
        """Encode overlapping states, the first ``still`` again as such; None: none overlap."""
        encoder: Any = self.encoders[self._place[name]]
        if name not in self._cameras:
            if still:
                reading = torch.cat((reading, reading[:still]))
            # Velocities may be a hundred times as large as positions.
            reading = reading.sign() * reading.abs().log1p()
            with torch.autocast(reading.device.type, enabled=False):
                encoded: Tensor = encoder(reading)
            return encoded
        encoded = encoder.single(reading) if still is None else encoder(reading, still)
        return encoded

    def _join(self, encodings: Tensor, missing: Tensor | None) -> Tensor:
        """Return c ``[..., D]`` of the sensors' encodings ``[..., K, D]``."""
        if missing is not None:
            encodings = torch.where(missing[..., None], self.absent, encodings)
        with torch.autocast(encodings.device.type, enabled=False):
            c: Tensor = self.norm(self.project(encodings.to(self.project.weight.dtype).flatten(-2)))
        return c.tanh() if self.tanh else c


def drop_sensors(
    shape: tuple[int, ...], share: float, generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """Return which sensors are hidden, bool ``shape [..., K]``: each with probability ``share``.

    Of the sensors of a state at least one stays: where all would go, the one that was drawn last.
    """
    where = device if generator is None else generator.device
    draws = torch.rand(shape, generator=generator, device=where).to(device)
    return (draws < share) & (draws < draws.amax(-1, keepdim=True))
