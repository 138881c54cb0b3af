"""From a config to the encoder φ it describes."""

from __future__ import annotations

from typing import Any

import torch

from sibe.config.schema import RunConfig
from sibe.envs.sensors import STATE
from sibe.nn.encoder import RGB, Encoder
from sibe.nn.late_encoder import LateFusionEncoder
from sibe.nn.sensor_encoder import SensorEncoder

AnyEncoder = Encoder | LateFusionEncoder | SensorEncoder


def build_encoder(config: RunConfig, generator: torch.Generator, state_size: int = 0) -> AnyEncoder:
    """Build the encoder of a run's sensors; ``generator`` draws its initial weights."""
    sensors = config.env.seen
    if sensors.bare:
        return build_camera_encoder(config, generator)
    if config.encoder.share_cameras:
        cameras = dict.fromkeys(sensors.views, build_camera_encoder(config, generator))
    else:
        cameras = {name: build_camera_encoder(config, generator) for name in sensors.views}
    return SensorEncoder(
        cameras,
        {STATE: state_size} if sensors.state else {},
        features=config.encoder.features,
        tanh=config.encoder.tanh,
        generator=generator,
    )


def build_camera_encoder(
    config: RunConfig, generator: torch.Generator
) -> Encoder | LateFusionEncoder:
    """Build the encoder of the pictures of one camera."""
    enc, size, stack = config.encoder, config.env.size, config.env.stack
    options: dict[str, Any] = {
        name: getattr(enc, name)
        for name in ("features", "filters", "strides", "tanh", "center", "chroma", "smooth")
    }
    if enc.fusion == "late":
        return LateFusionEncoder(size, RGB, stack=stack, **options, generator=generator)
    return Encoder(size, RGB * stack, **options, generator=generator)
