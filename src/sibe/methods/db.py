"""DB, the dynamic bottleneck: a compressed latent Z of (s, a) that predicts the next state.

Bai et al., "Dynamic Bottleneck for Robust Self-Supervised Exploration", NeurIPS 2021. Z keeps
what the next encoding needs (two lower bounds on I(Z; S'): a Gaussian likelihood and InfoNCE) and
little else (an upper bound on I(Z; [S, A]): the divergence from a fixed prior). How many nats a
transition needs beyond that prior is its information gain; the square root of it is the bonus.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibe.config.values import Count, Fraction, NonNegative, Positive, configuration
from sibe.methods.base import Latents, Method, MethodOutput, ParameterGroup, one_group
from sibe.nn.contrastive import Bilinear, accuracy, infonce
from sibe.nn.ema import frozen_copy, update_ema
from sibe.nn.gaussian import Gaussian, kl
from sibe.nn.init import orthogonal_
from sibe.nn.residual import ResidualBlock, ResidualNetwork
from sibe.nn.running import RunningMoments

POSTERIOR_FLOOR, PREDICTION_FLOOR = 1e-3, 0.1
"""The smallest standard deviations of g and of the prediction."""


@configuration("db")
class DBConfig:
    """What the paper of DB and its released settings fix, and the scale of the bonus here."""

    kl_weight: NonNegative = 0.1
    """α₁: weight of compression, KL(g ‖ prior); far below α₂ the bonus no longer means novelty."""
    prediction_weight: NonNegative = 0.1
    """α₂: weight of the Gaussian log-likelihood of the next encoding."""
    contrastive_weight: NonNegative = 0.01
    """α₃: weight of InfoNCE."""
    intrinsic: NonNegative = 0.1
    """Scale of the bonus, which comes in units of its own running spread; 0 for none."""
    root: bool = True
    """Pay the square root of the information gain, as its paper is said to do, not the gain."""
    normalize: bool = True
    """Divide the bonus by its running standard deviation."""
    train_encoder: Literal["nothing", "contrast", "everything"] = "contrast"
    """What of the loss trains the encoder, which SAC shares: InfoNCE alone, nothing, or all of it
    as in the original; in a shared encoder the KL term then makes all states alike."""
    first_std: Positive = 1.4
    """The first σ of the prediction. Above the spread of c a query drawn with it tells nothing, and
    Z stays at the prior until σ has come down."""
    latent: Count = 128
    """Dimension of Z and of the contrastive projection."""
    hidden: Count = 256
    """Width of the hidden layers of all heads."""
    tau: Fraction = 0.001
    """Step of the projection's momentum copy towards it."""
    lr: Positive = 1e-4
    """Learning rate of all heads."""


def softplus_gaussian(mean: Tensor, raw: Tensor, floor: float) -> Gaussian:
    """Return N(mean, σ²), σ = floor + log(1 + e^raw), of two ``[..., D]``.

    The floor is added: a σ cut off at it would get no more gradient and never leave it again.
    """
    return Gaussian(mean, (F.softplus(raw) + floor).log())


def _raw_std(std: float, floor: float) -> float:
    """Return what ``softplus_gaussian`` makes ``std`` of; of less than the floor, about it."""
    return math.log(math.expm1(max(std - floor, 1e-4)))


def log_likelihood(x: Tensor, prediction: Gaussian) -> Tensor:
    """Return log N(x; μ, σ²) summed over the dimensions, ``[..., D] -> [...]``."""
    distance = (x - prediction.mean) * (-prediction.log_std).exp()
    per_dimension = -0.5 * (distance.square() + math.log(2 * math.pi)) - prediction.log_std
    return per_dimension.sum(-1)


def information_gain(posterior: Gaussian) -> Tensor:
    """Return KL(g(Z|s, a) ‖ N(0, I)) in nats, ``[..., D] -> [...]``: the bound I_upper."""
    zeros = torch.zeros_like(posterior.mean)
    return kl(posterior, Gaussian(zeros, zeros)).sum(-1)


class Terms(NamedTuple):
    """The terms of the loss, per transition; all carry gradient."""

    kl: Tensor
    """``[L, B]`` I_upper: KL(g ‖ prior)"""
    log_likelihood: Tensor
    """``[L, B]`` I_pred: log q(c_{t+1} | Z)"""
    infonce: Tensor
    """``[L, B]`` -I_nce up to a constant"""
    metrics: dict[str, Tensor]
    """detached scalars that are no means of the terms"""


class DB(Method):
    """DB as a method of SAC; φ_o and φ_m of the agent are its encoder and momentum encoder."""

    def __init__(
        self,
        features: int,
        action_dim: int,
        config: DBConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config, self.action_dim = config, action_dim
        latent, hidden = config.latent, config.hidden
        # g(Z | s_t, a_t)
        self.posterior = ResidualNetwork(
            features, hidden, 2 * latent, condition=action_dim, generator=generator
        )
        # q(s_{t+1} | Z): the mean in two parts, and one σ for all dimensions.
        self.prediction = ResidualNetwork(latent, hidden, features, generator=generator)
        self.refinement = ResidualBlock(features)
        orthogonal_(self.refinement, generator)
        self.raw_std = nn.Parameter(torch.tensor(_raw_std(config.first_std, PREDICTION_FLOOR)))
        # Projection and momentum projection, and the bilinear score of a pair.
        self.projection = nn.Sequential(
            nn.Linear(features, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, latent),
            nn.LayerNorm(latent),
        )
        orthogonal_(self.projection, generator)
        self.target_projection = frozen_copy(self.projection)
        self.bilinear = Bilinear(latent, generator=generator)
        self.moments = RunningMoments()

    def encode(self, c: Tensor, action: Tensor) -> Gaussian:
        """Return g(Z | s, a) ``[..., latent]`` of c ``[..., D]`` and action ``[..., A]``."""
        mean, raw = self.posterior(c, action).chunk(2, dim=-1)
        return softplus_gaussian(mean, raw, POSTERIOR_FLOOR)

    def predict(self, z: Tensor) -> Gaussian:
        """Return q(s_{t+1} | Z) ``[..., D]`` of z ``[..., latent]``."""
        mean: Tensor = self.refinement(F.leaky_relu(self.prediction(z)))
        return softplus_gaussian(mean, self.raw_std.expand_as(mean), PREDICTION_FLOOR)

    def terms(self, x: Latents, generator: torch.Generator | None = None) -> Terms:
        """Return the three bounds of every transition."""
        # Of a shared encoder the KL term asks to say nothing, and the target encoder follows: on
        # cartpole c was nearly constant after 100 updates. InfoNCE alone holds states apart.
        whole = self.config.train_encoder == "everything"
        posterior = self.encode(x.c if whole else x.c.detach(), x.action)
        prediction = self.predict(posterior.sample(generator))
        seen = prediction
        if self.config.train_encoder == "contrast":
            seen = self.predict(self.encode(x.c, x.action).sample(generator))
        c_next = x.c_next.detach()
        with torch.no_grad():
            key = self.target_projection(c_next.flatten(0, 1))
        query = self.projection(seen.sample(generator).flatten(0, 1))
        scores = self.bilinear(query, key)
        metrics = {
            "infonce_accuracy": accuracy(scores),
            "std_g": posterior.std.detach().mean(),
            "std_q": prediction.std.detach().mean(),
        }
        return Terms(
            information_gain(posterior),
            log_likelihood(c_next, prediction),
            infonce(scores).reshape(x.reward.shape),
            metrics,
        )

    def forward(self, x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        """Return α₁ KL - α₂ log-likelihood + α₃ InfoNCE, the bonus ``[L, B]`` and metrics."""
        config, terms = self.config, self.terms(x, generator)
        means = {
            "kl": terms.kl.mean(),
            "log_likelihood": terms.log_likelihood.mean(),
            "infonce": terms.infonce.mean(),
        }
        loss = (
            config.kl_weight * means["kl"]
            - config.prediction_weight * means["log_likelihood"]
            + config.contrastive_weight * means["infonce"]
        )
        bonus = self._bonus(terms.kl.detach())
        metrics = {name: mean.detach() for name, mean in means.items()} | terms.metrics
        return MethodOutput(loss, bonus, metrics | {"bonus": bonus.mean()})

    def _bonus(self, gain: Tensor) -> Tensor:
        """Return the scaled bonus of information gains ``[L, B]``."""
        # Rounding can leave the gain of a posterior that equals the prior just below 0.
        gain = gain.clamp_min(0)
        bonus = gain.sqrt() if self.config.root else gain
        if self.config.normalize:
            bonus = self.moments.scale(bonus)
        return self.config.intrinsic * bonus

    @torch.no_grad()
    def embed(self, c: Tensor) -> dict[str, Tensor]:
        """Return z: the mean of g(Z | c, a) at the action 0, ``[..., latent]``."""
        return {"z": self.encode(c, c.new_zeros(*c.shape[:-1], self.action_dim)).mean}

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return all heads but the momentum copy at the learning rate of the heads."""
        return one_group(self, self.config.lr)

    def update_targets(self) -> None:
        """Move the momentum projection towards the projection by τ."""
        update_ema(self.target_projection, self.projection, self.config.tau)
