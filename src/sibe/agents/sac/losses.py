"""The losses of soft actor-critic as pure functions (Haarnoja et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor


def balanced(critic: Tensor, method: Tensor, weight: float, share: float = 0.0) -> Tensor:
    """Return the gradient that the encoder is given: both losses' gradients on c, ``[L, B, D]``.

    The critic's error grows with the return and its gradient is soon a hundred times the method's;
    in a plain sum, and so under one Adam, the method would no longer be felt. Separate Adams would
    cure that at the price of a second pass through the convolutions. Here the method's gradient is
    multiplied by ``weight`` instead, or scaled to ``share`` times the length of the critic's.
    """
    if not share:
        return critic + weight * method
    ratio: Tensor = critic.norm() / method.norm().clamp_min(1e-12)
    return critic + share * ratio * method


def n_step(reward: Tensor, bonus: Tensor, discount: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ_{i<n} (Π_{j<i} γ_{t+j}) (r_{t+i} + r*_t) and Π_{j<n} γ_{t+j}, each ``[L, B]``.

    Args:
        reward: ``[L + n - 1, B]``.
        bonus: r* ``[L, B]``. A transition's bonus stands for those of all its n steps: the method
            is not asked about the n - 1 transitions after the chunk.
        discount: γ, or 0 where the episode truly ended, ``[L + n - 1, B]``.
    """
    length = len(bonus)
    total, weight = torch.zeros_like(bonus), torch.ones_like(bonus)
    for step in range(len(reward) - length + 1):
        total = total + weight * (reward[step : step + length] + bonus)
        weight = weight * discount[step : step + length]
    return total, weight


def td_target(
    reward: Tensor, discount: Tensor, q1: Tensor, q2: Tensor, log_prob: Tensor, temperature: Tensor
) -> Tensor:
    """Return y = r + γ·(min Q̄(s', a') - α_T log π(a'|s')); all arguments ``[N]``.

    ``discount`` is γ, or γⁿ where ``reward`` is a sum of n, or 0 where the episode truly ended; a
    time limit bootstraps. s' is then the state n steps on.
    """
    return reward + discount * (q1.minimum(q2) - temperature * log_prob)


def critic_loss(q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
    """Return the squared Bellman errors of both critics, each averaged over the batch."""
    return (q1 - target).square().mean() + (q2 - target).square().mean()


def actor_loss(log_prob: Tensor, q1: Tensor, q2: Tensor, temperature: Tensor) -> Tensor:
    """Return E[α_T log π(a|s) - min Q(s, a)]; q carries the gradient to the action."""
    return (temperature * log_prob - q1.minimum(q2)).mean()


def temperature_loss(temperature: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """Return E[α_T (-log π(a|s) - H̄)], which moves the entropy towards ``target_entropy``."""
    return (temperature * (-log_prob - target_entropy).detach()).mean()
