"""Observations to embeddings and back, for any set of sensors.

Pixels of one camera alone go through one pair of convolutional networks (`images`). With other
sensors each camera has a pair of its own and the vector a pair of small networks; an embedding is
theirs side by side. Vectors are seen, and predicted, as sign(x)·log(1 + |x|), as in DreamerV3
(Hafner et al. 2023): velocities may be a hundred times as large as positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.agents.plan2explore.images import ConvDecoder, ConvEncoder, to_float
from sibe.agents.plan2explore.networks import elu_mlp
from sibe.envs.sensors import STATE, Observation, Sensors, each


def to_inputs(obs: Observation) -> Observation:
    """Return what networks see and predict of readings: pixels -½ … ½, vectors compressed."""
    return each(lambda part: to_float(part) if part.dtype == torch.uint8 else symlog(part), obs)


def symlog(vector: Tensor) -> Tensor:
    """Return sign(x)·log(1 + |x|), for any shape."""
    return vector.sign() * vector.abs().log1p()


class JointEncoder(nn.Module):
    """Inputs by sensor -> embeddings ``[..., size]``, side by side in the order of ``names``.

    What stands for a sensor that gives no reading is learned where sensors are dropped in
    training, and zero where they never are.
    """

    def __init__(
        self,
        sensors: Sensors,
        image_size: int,
        state_size: int,
        config: Plan2ExploreConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.names = sensors.names
        self.encoders = nn.ModuleDict()
        sizes = []
        for name in self.names:
            if name == STATE:
                widths = (state_size, config.hidden, config.hidden)
                self.encoders[name] = elu_mlp(widths, generator=generator)
                sizes.append(config.hidden)
            else:
                camera = ConvEncoder(image_size, config.depth, generator=generator)
                self.encoders[name] = camera
                sizes.append(camera.size)
        self.size = sum(sizes)
        self.absent = nn.Parameter(torch.zeros(self.size))
        sensor = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        self.register_buffer("_sensor", sensor, persistent=False)  # [E], of each entry

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Encode inputs with any leading dimensions."""
        return torch.cat([self.encoders[name](inputs[name]) for name in self.names], dim=-1)

    def without(self, embedding: Tensor, missing: Tensor) -> Tensor:
        """Return ``embedding [..., E]`` without the sensors that are ``missing``, ``[..., K]``."""
        return torch.where(missing[..., self.get_buffer("_sensor")], self.absent, embedding)


class JointDecoder(nn.Module):
    """Features ``[..., D]`` -> means of the inputs by sensor."""

    def __init__(
        self,
        features: int,
        sensors: Sensors,
        image_size: int,
        state_size: int,
        config: Plan2ExploreConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.decoders = nn.ModuleDict()
        for name in sensors.names:
            if name == STATE:
                widths = (features, config.hidden, config.hidden, state_size)
                self.decoders[name] = elu_mlp(widths, generator=generator)
            else:
                self.decoders[name] = ConvDecoder(
                    features, image_size, config.depth, generator=generator
                )

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        """Decode ``features`` with any leading dimensions."""
        return {name: decoder(features) for name, decoder in self.decoders.items()}
