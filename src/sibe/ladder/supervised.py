"""The preset's encoder, taught the state by regression: what the architecture can see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from sibe.agents.sac.encoders import build_camera_encoder
from sibe.analysis.representation.ridge import Floats
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.envs.rendering.renderer import Frame
from sibe.ladder.decoding import r2_of_predictions
from sibe.ladder.fixed_episodes import FixedEpisodes
from sibe.ladder.marks import marks
from sibe.nn.encoder import Encoder
from sibe.nn.late_encoder import LateFusionEncoder
from sibe.training.seeding import numpy_stream, torch_stream

_BATCH = 256


class Regression(nn.Module):
    """An encoder and a linear head that tells the state from c."""

    def __init__(self, config: RunConfig, quantities: int, generator: torch.Generator) -> None:
        super().__init__()
        self.encoder: Encoder | LateFusionEncoder = build_camera_encoder(config, generator)
        self.head = nn.Linear(config.encoder.features, quantities)
        nn.init.orthogonal_(self.head.weight, generator=generator)
        nn.init.zeros_(self.head.bias)

    @torch.no_grad()
    def predictions(self, images: Frame) -> Floats:
        """Return the states ``[N, K]`` told from ``images`` uint8 ``[N, H, W, C·stack]``."""
        device = self.head.weight.device
        told = [
            self.head(self.encoder.single(torch.from_numpy(images[i : i + _BATCH]).to(device)))
            for i in range(0, len(images), _BATCH)
        ]
        predicted: Floats = torch.cat(told).cpu().numpy().astype(np.float64)
        return predicted


def train_supervised(
    config: RunConfig,
    episodes: FixedEpisodes,
    updates: int,
    device: torch.device,
    report: Callable[[int, Floats], None],
) -> nn.Module:
    """Regress the standardized state on images with random shifts; return the encoder.

    Args:
        config: encoder, its learning rate, and what a minibatch is.
        episodes: images and states.
        updates: minibatches.
        device: where the encoder learns.
        report: is given, at a few marks, the number of updates and R² ``[K]`` on held-out
            episodes.
    """
    quantities = episodes.moments.states.shape[1]
    model = Regression(config, quantities, torch_stream(config.seed, "supervised"))
    model.to(device)
    model.encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(model.parameters(), lr=config.encoder.lr, fused=True)
    # Whole chunks only: after a termination there is no label.
    wanted = sampling(config)._replace(online=0, least=None)
    rng = numpy_stream(config.seed, "supervised")
    looks = marks(updates)
    for update in range(updates + 1):
        if update in looks:
            predicted = model.predictions(episodes.moments.images)
            report(update, r2_of_predictions(episodes.moments, predicted))
        if update == updates:
            break
        chunk = episodes.replay.minibatch(wanted, rng).to(device)
        target = chunk.action[..., -quantities:]
        told = model.head(model.encoder(chunk.online(0, wanted.length)))
        loss = nn.functional.mse_loss(told, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return model.encoder
