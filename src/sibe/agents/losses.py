"""The losses of soft actor-critic as pure functions (Haarnoja et al. 2018)."""

from __future__ import annotations

from torch import Tensor


def td_target(
    reward: Tensor, discount: Tensor, q1: Tensor, q2: Tensor, log_prob: Tensor, temperature: Tensor
) -> Tensor:
    """Return y = r + γ·(min Q̄(s', a') - α_T log π(a'|s')); all arguments ``[N]``.

    ``discount`` is γ, or 0 where the episode truly ended; a time limit bootstraps.
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
