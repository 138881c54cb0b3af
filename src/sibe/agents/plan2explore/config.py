"""What can be set about Plan2Explore; the defaults are those of its authors' code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sibe.errors import UserError
from sibe.methods.settings import NOT_NEGATIVE, POSITIVE, UNIT, check, whole
from sibe.replay.sampling import Sampling


@dataclass(frozen=True)
class Plan2ExploreConfig:
    """Plan2Explore: a world model, the disagreement of an ensemble, and behaviour in imagination.

    It is an agent of its own: the flags of SAC and of its encoder do not apply.
    """

    mode: Literal["combination", "zero_shot"] = "combination"
    """combination: one policy for task reward plus bonus. zero_shot: a curious policy collects for
    the bonus alone, a task policy learned in imagination is evaluated."""
    intrinsic: float = 0.01
    """β: scale of the bonus beside the task reward; combination only."""
    disagreement_scale: float = 10_000.0
    """Scale of the ensemble's variance, which makes it the bonus (before β)."""
    members: int = 5
    """K: one-step models in the ensemble."""
    ensemble_hidden: int = 1024
    """Width of the two hidden layers of a one-step model."""
    batch: int = 50
    """Sequences per minibatch."""
    sequence: int = 50
    """Consecutive frames per sequence."""
    update_every: int = 5
    """Agent steps between two updates."""
    horizon: int = 15
    """H: steps imagined from every state of the minibatch."""
    deterministic: int = 400
    """Size of the deterministic state h (the GRU)."""
    stochastic: int = 60
    """Size of the stochastic state s (the Gaussian)."""
    hidden: int = 400
    """Width of the hidden layers of the world model's heads, of actor and of value."""
    depth: int = 32
    """Channels of the encoder's first convolution; each further one has twice as many."""
    free_nats: float = 3.0
    """KL below which the posterior is not pulled towards the prior, in nats."""
    kl_scale: float = 1.0
    """Weight of the KL divergence in the world model's loss."""
    kl_balance: float = 0.5
    """Share of the KL's gradient that moves the prior; 0.5 is the plain KL, DreamerV2 took 0.8."""
    discount: float = 0.99
    """γ, per agent step."""
    return_lambda: float = 0.95
    """λ of the λ-return."""
    model_lr: float = 6e-4
    """Learning rate of the world model and of the ensemble."""
    actor_lr: float = 8e-5
    """Learning rate of the actor."""
    value_lr: float = 8e-5
    """Learning rate of the value."""
    clip: float = 100.0
    """Largest norm of a gradient."""
    action_noise: float = 0.3
    """Standard deviation of the noise added to actions while collecting."""

    def __post_init__(self) -> None:
        """Refuse values that have no meaning."""
        check("plan2explore", self, whole(1), *_COUNTS)
        check("plan2explore", self, whole(2), "sequence", "members")
        check("plan2explore", self, POSITIVE, "model_lr", "actor_lr", "value_lr", "clip")
        scales = ("intrinsic", "disagreement_scale", "free_nats", "kl_scale", "action_noise")
        check("plan2explore", self, NOT_NEGATIVE, *scales)
        check("plan2explore", self, UNIT, "kl_balance", "discount", "return_lambda")
        if self.mode not in ("combination", "zero_shot"):
            raise UserError(f"plan2explore: mode is {self.mode!r}: combination or zero_shot")

    def sampling(self) -> Sampling:
        """Return what an update draws: a sequence of T frames has T - 1 transitions; no shift."""
        return Sampling(self.batch, self.sequence - 1, shift=0, every=self.update_every)


_COUNTS = (
    *("ensemble_hidden", "batch", "update_every", "horizon"),
    *("deterministic", "stochastic", "hidden", "depth"),
)
