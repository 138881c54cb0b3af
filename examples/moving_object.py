"""Frames of a video without rewards or actions: learn where the moving object is.

    python examples/moving_object.py

A disc moves over white noise and bounces off the walls. The package's convolutional encoder and
the bottleneck learn from pairs of neighboring frames; a linear map then reads the position of the
disc from z.
"""

from __future__ import annotations

import numpy as np
import torch
from linear_probe import r_squared
from torch import Tensor

from sibe import SequentialBottleneck, SIBEConfig
from sibe.nn.ema import frozen_copy, update_ema
from sibe.nn.encoder import Encoder

FRAMES, HELD_OUT, SIZE, RADIUS = 4_000, 1_000, 24, 3


def make_video(seed: int) -> tuple[Tensor, Tensor]:
    """Return uint8 frames ``[FRAMES, SIZE, SIZE, 1]`` and positions ``[FRAMES, 2]`` in pixels."""
    rng = np.random.default_rng(seed)
    low, high = RADIUS, SIZE - 1 - RADIUS
    positions = np.empty((FRAMES, 2))
    position, velocity = rng.uniform(low, high, 2), rng.standard_normal(2)
    for t in range(FRAMES):
        positions[t] = position
        velocity = 0.9 * velocity + 0.4 * rng.standard_normal(2)
        position = position + velocity
        outside = (position < low) | (position > high)
        velocity[outside] *= -1
        position = position.clip(low, high)
    axis = np.arange(SIZE)
    rows, columns = (np.square(axis - positions[:, [i]]) for i in range(2))
    disc = rows[:, :, None] + columns[:, None, :] < RADIUS**2
    frames = rng.normal(100, 40, disc.shape) + 80 * disc
    pixels = torch.from_numpy(frames.clip(0, 255).astype(np.uint8))
    return pixels[..., None], torch.from_numpy(positions).float()


def make_model(seed: int) -> tuple[Encoder, SequentialBottleneck]:
    """Return an untrained encoder and the bottleneck on top of it, without actions."""
    generator = torch.Generator().manual_seed(seed)
    encoder = Encoder(
        SIZE, 1, features=32, filters=16, center=True, smooth=True, generator=generator
    )
    config = SIBEConfig(alpha=0.001, latent=16, hidden=128)
    return encoder, SequentialBottleneck(encoder.features, 0, config, generator=generator)


def train(
    encoder: Encoder, bottleneck: SequentialBottleneck, frames: Tensor, updates: int, seed: int
) -> None:
    """Fit encoder and bottleneck to all pairs of neighboring ``frames``."""
    generator = torch.Generator().manual_seed(seed)
    target_encoder = frozen_copy(encoder)
    optimizer = torch.optim.Adam([*encoder.parameters(), *bottleneck.parameters()], lr=1e-3)
    for _ in range(updates):
        t = torch.randint(len(frames) - 1, (128,), generator=generator)
        c, c_next = encoder(frames[t]), target_encoder(frames[t + 1])
        loss = bottleneck(c, None, c_next, generator).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bottleneck.update_targets()
        update_ema(target_encoder, encoder, tau=0.05)


@torch.no_grad()
def position_r2(
    encoder: Encoder, bottleneck: SequentialBottleneck, frames: Tensor, positions: Tensor
) -> float:
    """Return the mean R² of row and column, decoded linearly from z."""
    return r_squared(bottleneck.encode(encoder(frames)), positions).mean().item()


def main(updates: int = 300, seed: int = 0) -> tuple[float, float]:
    """Print and return how well the position is known before and after training."""
    frames, positions = make_video(seed)
    encoder, bottleneck = make_model(seed)
    held_out = frames[-HELD_OUT:], positions[-HELD_OUT:]
    untrained = position_r2(encoder, bottleneck, *held_out)
    train(encoder, bottleneck, frames[:-HELD_OUT], updates, seed)
    trained = position_r2(encoder, bottleneck, *held_out)
    print(f"R² of the position from z: {untrained:.2f} untrained, {trained:.2f} trained")
    return untrained, trained


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
