"""What can be set about Plan2Explore; the defaults are those of its authors' code."""

from __future__ import annotations

from typing import Annotated, Literal

from sibe.config.values import Bounds, Count, NonNegative, Positive, Unit, configuration


@configuration("plan2explore")
class Plan2ExploreConfig:
    """Plan2Explore: a world model, the disagreement of an ensemble, and behavior in imagination.

    It is a standalone agent: the flags of SAC and of its encoder do not apply.
    """

    mode: Literal["combination", "zero_shot"] = "combination"
    """combination: one policy for task reward plus bonus. zero_shot: a curious policy collects for
    the bonus alone, a task policy learned in imagination is evaluated."""
    intrinsic: NonNegative = 0.01
    """β: scale of the bonus beside the task reward; combination only."""
    disagreement_scale: NonNegative = 10_000.0
    """Scale of the ensemble's variance, which makes it the bonus (before β)."""
    members: Annotated[int, Bounds(2)] = 5
    """K: one-step models in the ensemble."""
    ensemble_hidden: Count = 1024
    """Width of the two hidden layers of a one-step model."""
    batch: Count = 50
    """Sequences per minibatch."""
    sequence: Annotated[int, Bounds(2)] = 50
    """Consecutive frames per sequence."""
    update_every: Count = 5
    """Agent steps between two updates."""
    horizon: Count = 15
    """H: steps imagined from every state of the minibatch."""
    deterministic: Count = 400
    """Size of the deterministic state h (the GRU)."""
    stochastic: Count = 60
    """Size of the stochastic state s (the Gaussian)."""
    hidden: Count = 400
    """Width of the hidden layers of the world model's heads, of actor and of value."""
    depth: Count = 32
    """Channels of the encoder's first convolution; each further one has twice as many."""
    free_nats: NonNegative = 3.0
    """KL below which the posterior is not pulled towards the prior, in nats."""
    kl_scale: NonNegative = 1.0
    """Weight of the KL divergence in the world model's loss."""
    kl_balance: Unit = 0.5
    """Share of the KL's gradient that moves the prior; 0.5 is the plain KL, DreamerV2 took 0.8."""
    discount: Unit = 0.99
    """γ, per agent step."""
    return_lambda: Unit = 0.95
    """λ of the λ-return."""
    model_lr: Positive = 6e-4
    """Learning rate of the world model and of the ensemble."""
    actor_lr: Positive = 8e-5
    """Learning rate of the actor."""
    value_lr: Positive = 8e-5
    """Learning rate of the value."""
    clip: Positive = 100.0
    """Largest norm of a gradient."""
    action_noise: NonNegative = 0.3
    """Standard deviation of the noise added to actions while collecting."""
