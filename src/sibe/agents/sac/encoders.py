"""From a config to the encoder φ it describes."""

from __future__ import annotations

from typing import Any

import torch

from sibe.config.schema import RunConfig
from sibe.nn.encoder import Encoder
from sibe.nn.late_encoder import LateFusionEncoder

_CHANNELS = 3


def build_encoder(config: RunConfig, generator: torch.Generator) -> Encoder | LateFusionEncoder:
    """Build the encoder; ``generator`` draws its initial weights."""
    enc, size, stack = config.encoder, config.env.size, config.env.stack
    options: dict[str, Any] = {
        name: getattr(enc, name)
        for name in ("features", "filters", "strides", "tanh", "center", "smooth")
    }
    if enc.fusion == "late":
        return LateFusionEncoder(size, _CHANNELS, stack=stack, **options, generator=generator)
    return Encoder(size, _CHANNELS * stack, **options, generator=generator)
