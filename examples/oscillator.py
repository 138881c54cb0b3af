"""A hidden oscillator, driven by known actions, in 40 channels of structured distraction.

    python examples/oscillator.py

Each channel is a mix of the oscillator's two coordinates and of eight sources of distraction, plus
sensor noise. The bottleneck gets channels and actions and is never told which part is which. In
one recording the distraction is new at every step (though shared by all channels), in the other
it drifts slowly. Everything is linear and Gaussian, so the information that one step of the
channels and its action give about the next has a closed form, to compare the bound with.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from linear_probe import r_squared
from scipy.linalg import block_diag, solve_discrete_lyapunov
from torch import Tensor

from sibe import SequentialBottleneck, SIBEConfig

CHANNELS, DISTRACTIONS, STEPS, HELD_OUT = 40, 8, 20_000, 4_000
SENSOR_NOISE = 0.05
# The log-ratio that the score has to learn is bilinear in (E[x'|x, a], 1) and (x', a square of x'):
# rank 3 for the oscillator's two coordinates. More dimensions would leave room for distraction.
CONFIG = SIBEConfig(alpha=0.001, latent=3, hidden=256, tau=0.2)
RESTARTS = 3  # one start in about ten stops far below the others

Floats = npt.NDArray[np.float64]


class System(NamedTuple):
    """s' = F s + G a + w with w ~ N(0, W); channels y = M s + e; a ~ N(0, 1).

    The first two entries of s are the oscillator, the others the distraction.
    """

    transition: Floats
    """F ``[S, S]``"""
    drive: Floats
    """G ``[S, 1]``: actions push the oscillator only"""
    noise: Floats
    """W ``[S, S]``, diagonal"""
    mix: Floats
    """M ``[CHANNELS, S]``"""

    @property
    def covariance(self) -> Floats:
        """The stationary covariance of s: S = F S Fᵀ + G Gᵀ + W."""
        inputs = self.drive @ self.drive.T + self.noise
        covariance: Floats = solve_discrete_lyapunov(self.transition, inputs)
        return covariance


def make_system(memory: float, rng: np.random.Generator) -> System:
    """Return a system whose distraction keeps ``memory`` of itself per step, at variance 1."""
    damping, angle = 0.9, 0.4
    cos, sin = damping * math.cos(angle), damping * math.sin(angle)
    transition = block_diag([[cos, sin], [-sin, cos]], memory * np.eye(DISTRACTIONS))
    drive = np.zeros((2 + DISTRACTIONS, 1))
    drive[1] = 0.5
    noise = np.diag([0.3**2] * 2 + [1 - memory**2] * DISTRACTIONS)
    mix = rng.standard_normal((CHANNELS, 2 + DISTRACTIONS)) / math.sqrt(2 + DISTRACTIONS)
    return System(transition, drive, noise, mix)


def predictive_information(system: System) -> float:
    """Return I(y_{t+1}; y_t, a_t) in nats: ½ log(det Y / det(Y - K P⁻¹ Kᵀ)).

    Y = M S Mᵀ + R is the covariance of y, P that of (y_t, a_t), and K = M [F S Mᵀ, G] that of
    y_{t+1} with (y_t, a_t).
    """
    transition, drive, _, mix = system
    state = system.covariance
    channels = mix @ state @ mix.T + SENSOR_NOISE**2 * np.eye(CHANNELS)
    past = block_diag(channels, np.eye(1))
    cross = mix @ np.hstack((transition @ state @ mix.T, drive))
    unpredicted = channels - cross @ np.linalg.solve(past, cross.T)
    return float(np.linalg.slogdet(channels)[1] - np.linalg.slogdet(unpredicted)[1]) / 2


class Recording(NamedTuple):
    """One long series."""

    channels: Tensor
    """``[STEPS, CHANNELS]``, standardized"""
    actions: Tensor
    """``[STEPS, 1]``"""
    states: Tensor
    """``[STEPS, 2 + DISTRACTIONS]``: only the probe sees them"""


def record(system: System, rng: np.random.Generator) -> Recording:
    """Let the system run for ``STEPS`` steps from its stationary distribution."""
    actions = rng.standard_normal((STEPS, 1))
    noise = rng.standard_normal((STEPS, len(system.noise))) * np.sqrt(np.diag(system.noise))
    states = np.empty_like(noise)
    state = rng.multivariate_normal(np.zeros(len(system.noise)), system.covariance)
    for t in range(STEPS):
        states[t] = state
        state = system.transition @ state + system.drive @ actions[t] + noise[t]
    channels = states @ system.mix.T + SENSOR_NOISE * rng.standard_normal((STEPS, CHANNELS))
    channels = (channels - channels.mean(0)) / channels.std(0)
    return Recording(*(torch.from_numpy(x).float() for x in (channels, actions, states)))


def make_bottleneck(seed: int, config: SIBEConfig) -> SequentialBottleneck:
    """Return an untrained bottleneck that takes the channels as they are for c."""
    generator = torch.Generator().manual_seed(seed)
    return SequentialBottleneck(CHANNELS, 1, config, generator=generator)


def train(bottleneck: SequentialBottleneck, recording: Recording, updates: int, seed: int) -> None:
    """Fit the bottleneck to all but the last ``HELD_OUT`` steps."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(bottleneck.parameters(), lr=2e-3)
    # Constant for one half, then down to 0.
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda u: min(1, 2 - 2 * u / updates))
    channels, actions, _ = recording
    for _ in range(updates):
        t = torch.randint(STEPS - HELD_OUT - 1, (512,), generator=generator)
        loss = bottleneck(channels[t], actions[t], channels[t + 1], generator).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        bottleneck.update_targets()


def fit(
    recording: Recording, config: SIBEConfig, updates: int, seed: int, restarts: int = RESTARTS
) -> SequentialBottleneck:
    """Train from several first weights; return the one with the highest bound in training."""
    fitted = []
    for number in range(restarts):
        bottleneck = make_bottleneck(seed + 1000 * number, config)
        train(bottleneck, recording, updates, seed + 1000 * number)
        fitted.append(bottleneck)
    trained = Recording(*(x[:-HELD_OUT] for x in recording))
    return max(fitted, key=lambda bottleneck: information_bound(bottleneck, trained))


@torch.no_grad()
def information_bound(bottleneck: SequentialBottleneck, recording: Recording) -> float:
    """Return the lower bound on I(z_{t+1}; z_t, a_t) in nats, from 3 × 1000 random steps."""
    channels, actions, _ = recording
    generator = torch.Generator().manual_seed(0)
    bound = torch.zeros(())
    for t in torch.randperm(len(channels) - 1, generator=generator)[:3000].split(1000):
        out = bottleneck(channels[t], actions[t], channels[t + 1], generator)
        bound += out.metrics["mutual_information_bound"] / 3
    return bound.item()


class Result(NamedTuple):
    """What z knows on held-out steps."""

    oscillator: float
    """mean R² of the oscillator's coordinates, decoded linearly from z"""
    distraction: float
    """mean R² of the sources of distraction"""
    bound: float
    """lower bound on I(z_{t+1}; z_t, a_t) in nats, 1000 candidates"""


@torch.no_grad()
def evaluate(bottleneck: SequentialBottleneck, recording: Recording) -> Result:
    """Judge a bottleneck on the last ``HELD_OUT`` steps."""
    held_out = Recording(*(x[-HELD_OUT:] for x in recording))
    r2 = r_squared(bottleneck.encode(held_out.channels), held_out.states)
    bound = information_bound(bottleneck, held_out)
    return Result(r2[:2].mean().item(), r2[2:].mean().item(), bound)


def compare(
    memory: float,
    config: SIBEConfig = CONFIG,
    updates: int = 600,
    seed: int = 0,
    restarts: int = RESTARTS,
) -> tuple[Result, Result, float]:
    """Return what z knows untrained and trained, and the closed form of the information."""
    rng = np.random.default_rng(seed)
    system = make_system(memory, rng)
    recording = record(system, rng)
    untrained = evaluate(make_bottleneck(seed, config), recording)
    trained = evaluate(fit(recording, config, updates, seed, restarts), recording)
    return untrained, trained, predictive_information(system)


def main() -> dict[str, tuple[Result, Result, float]]:
    """Print and return the results of both kinds of distraction."""
    results = {name: compare(memory) for name, memory in (("noise", 0.0), ("drift", 0.95))}
    print("distraction  z          R² oscillator  R² distraction  bound  closed form (nats)")
    for name, (untrained, trained, information) in results.items():
        for z, result in (("untrained", untrained), ("trained", trained)):
            print(
                f"{name:11}  {z:9}  {result.oscillator:13.2f}  {result.distraction:14.2f}"
                f"  {result.bound:5.2f}  {information:18.2f}"
            )
    return results


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
