"""SIBE, the sequential information bottleneck: a compressed, predictive latent z and its surprise.

From chunks of encoded transitions (c_t, a_t, c_{t+1}) it learns bottleneck variables z that
predict their own successors (InfoNCE) and keep nothing that the past does not predict (KL), by
minimizing α·KL + InfoNCE (Eq. optim). The InfoNCE loss of a transition, times λ, is the bonus
for visiting it (Eq. intrinsic reward). ``SequentialBottleneck`` is the model alone, for use in
any agent; ``SIBE`` plugs it into this package's SAC.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from sibe.config.values import Count, Fraction, NonNegative, Positive, configuration
from sibe.errors import UserError
from sibe.methods.base import (
    Latents,
    Method,
    MethodOutput,
    ParameterGroup,
    SensorLatents,
    one_group,
)
from sibe.methods.cross_sensor import cross_sensor_terms
from sibe.nn.contrastive import Bilinear, accuracy, infonce
from sibe.nn.ema import frozen_copy, update_ema
from sibe.nn.gaussian import Gaussian, GaussianHead, kl
from sibe.nn.mlp import mlp


@configuration("sibe")
class SIBEConfig:
    """What the paper fixes about SIBE, and how its blanks are filled."""

    alpha: NonNegative = 0.1
    """α: weight of compression (the KL term) against prediction; 0 is "non-compression SIBE"."""
    intrinsic: NonNegative = 0.001
    """λ: scale of the intrinsic reward; 0 is "non-reward SIBE"."""
    latent: Count = 50
    """Dimension of the bottleneck variable z."""
    hidden: Count = 1024
    """Width of the hidden layers of all heads."""
    tau: Fraction = 0.05
    """τ: step of the target stochastic encoder and prediction head towards the online ones."""
    head_layer_norm: bool = True
    """Normalize [mean, log-std] of the Gaussian heads; without it the KL term can explode."""
    first_std: Positive = 0.05
    """About the first σ of g and q; near 1, the sampling noise of z drowns all that c tells."""
    start: Literal["identity", "random"] = "identity"
    """How d_υ and ω start: passing z_t through, so that equal states score highest, or random."""
    kl_reduction: Literal["sum", "mean"] = "sum"
    """How the KL divergence is reduced over the dimensions of z."""
    negatives: Literal["pooled", "step"] = "pooled"
    """Negatives: all other z_{t+1} of the minibatch, or those of the same time step only."""
    predicts: Literal["state", "frame"] = "state"
    """What z_{t+1} is made of: the next state, or its newest frame alone, the one that s_t has not
    seen; the frames they share let InfoNCE recognize a state by its noise (an extension)."""
    sensors: Literal["joint", "cross"] = "joint"
    """With several sensors: the loss on their joint c alone, or prediction across them as well."""
    lr: Positive = 1e-4
    """Learning rate of all heads."""


class BottleneckOutput(NamedTuple):
    """The terms of the loss, per transition, and the sampled bottleneck variables.

    Without the leading L if the encodings had none.
    """

    loss: Tensor
    """scalar: mean over all L·B transitions of α·KL + InfoNCE"""
    infonce: Tensor
    """``[L, B]``; carries gradient"""
    kl: Tensor
    """``[L, B]``; carries gradient unless α is 0"""
    z: Tensor
    """``[L, B, latent]`` z_t ~ g_o; carries gradient"""
    z_next: Tensor
    """``[L, B, latent]`` z_{t+1} ~ g_m; no gradient"""
    metrics: dict[str, Tensor]
    """detached scalars: see ``SequentialBottleneck``"""


class SequentialBottleneck(nn.Module):
    """The bottleneck on top of any encoder of your own.

    Give it c_t = φ_o(s_t) with gradient and c_{t+1} = φ_m(s_{t+1}) from a slowly moving copy,
    add ``loss`` to your own, and call ``update_targets`` after each optimizer step.

    Args:
        features: D, the size of c.
        action_dim: A; 0 for a series without actions.
        config: everything else, with defaults.
        latent: dimension of z, instead of the config's.
        hidden: width of the hidden layers, instead of the config's.
        generator: draws the initial weights; None for torch's global one.

    Metrics: ``kl`` and ``infonce`` (means), ``infonce_accuracy`` (how often the own successor
    scores highest), ``mutual_information_bound`` (log N - InfoNCE, N candidates, in nats),
    ``std_g`` and ``std_q`` (mean standard deviation of g_o and of q_ψ).
    """

    def __init__(
        self,
        features: int,
        action_dim: int,
        config: SIBEConfig | None = None,
        *,
        latent: int | None = None,
        hidden: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        config = config or SIBEConfig()
        config = config if latent is None else replace(config, latent=latent)
        self.config = config = config if hidden is None else replace(config, hidden=hidden)
        self.action_dim = action_dim
        latent, hidden, normalize = config.latent, config.hidden, config.head_layer_norm
        joint = latent + action_dim  # m(z_t, a_t), the concatenation
        first_std = config.first_std
        # g_o and g_m
        self.stochastic_encoder = GaussianHead(
            (features, hidden, latent),
            layer_norm=normalize,
            first_std=first_std,
            generator=generator,
        )
        self.target_stochastic_encoder = frozen_copy(self.stochastic_encoder)
        # q_ψ
        self.transition = GaussianHead(
            (joint, hidden, hidden, latent),
            layer_norm=normalize,
            first_std=first_std,
            generator=generator,
        )
        # d_υ: one layer and no ReLU, so that f_o, like its copy f_m, sees both signs.
        self.projection = mlp((joint, latent), generator=generator)
        # f_o and f_m
        self.prediction = mlp((latent, hidden, latent), generator=generator)
        self.target_prediction = frozen_copy(self.prediction)
        # ω
        self.bilinear = Bilinear(latent, generator=generator)
        if config.start == "identity":
            self._start_as_identity()

    @torch.no_grad()
    def _start_as_identity(self) -> None:
        """Let z_t through d_υ and ω unchanged, and the action out.

        The score of a pair is then the likeness of f(z_t) and f(z_{t+1}): neighbors in time score
        high from the first update on, and InfoNCE leaves log N at once.
        """
        first: nn.Linear = self.projection[0]  # type: ignore[assignment]
        nn.init.eye_(first.weight)
        nn.init.eye_(self.bilinear.weight)

    def forward(
        self,
        c: Tensor,
        action: Tensor | None,
        c_next: Tensor,
        generator: torch.Generator | None = None,
    ) -> BottleneckOutput:
        """Return the loss of transitions and its terms.

        Args:
            c: ``[L, B, D]``, or ``[B, D]`` for single transitions; L and B from 1.
            action: ``[L, B, A]`` or ``[B, A]``; None if ``action_dim`` is 0.
            c_next: as c.
            generator: draws z; None for torch's global one.
        """
        if action is None:
            if self.action_dim:
                raise UserError(
                    f"the bottleneck expects actions of size {self.action_dim}: pass them, or "
                    "make it with action_dim=0"
                )
            action = c.new_empty(*c.shape[:-1], 0)
        if c.dim() == 2:
            out = self.forward(c[None], action[None], c_next[None], generator)
            parts = {name: getattr(out, name)[0] for name in ("infonce", "kl", "z", "z_next")}
            return out._replace(**parts)
        online: Gaussian = self.stochastic_encoder(c)
        z = online.sample(generator)
        with torch.no_grad():
            target: Gaussian = self.target_stochastic_encoder(c_next)
            z_next = target.sample(generator)
            key = self.target_prediction(z_next)
        joint = torch.cat((z, action), dim=-1)

        divergence, predicted = self.divergence(target, joint)
        scores = self.scores(self.prediction(self.projection(joint)), key)
        surprise = infonce(scores).reshape(z.shape[:-1])
        loss = surprise.mean()
        if self.config.alpha:
            loss = loss + self.config.alpha * divergence.mean()

        metrics = _metrics(scores.detach(), divergence.detach(), surprise.detach())
        metrics |= {"std_g": online.std.detach().mean(), "std_q": predicted.std.detach().mean()}
        return BottleneckOutput(loss, surprise, divergence, z, z_next, metrics)

    def encode(self, c: Tensor) -> Tensor:
        """Return z ``[..., latent]``, the mean of g_o(z|c), of c ``[..., D]``; carries gradient."""
        z: Gaussian = self.stochastic_encoder(c)
        return z.mean

    def divergence(self, target: Gaussian, joint: Tensor) -> tuple[Tensor, Gaussian]:
        """Return KL(g_m(z_{t+1}|c_{t+1}) ‖ q_ψ(z_{t+1}|z_t, a_t)) ``[L, B]``, and q_ψ (Eq. kl)."""
        # Without compression the divergence is only watched: no graph for it.
        with nullcontext() if self.config.alpha else torch.no_grad():
            predicted: Gaussian = self.transition(joint)
            per_dimension = kl(target, predicted)
            if self.config.kl_reduction == "sum":
                return per_dimension.sum(-1), predicted
            return per_dimension.mean(-1), predicted

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return log h_ω of all pairs: ``[…, L·B, L·B]`` (pooled) or ``[…, L, B, B]`` (step)."""
        if self.config.negatives == "pooled":
            query, key = query.flatten(-3, -2), key.flatten(-3, -2)
        scores: Tensor = self.bilinear(query, key)
        return scores

    def update_targets(self) -> None:
        """Move g_m and f_m towards g_o and f_o by τ (Eq. ema)."""
        update_ema(self.target_stochastic_encoder, self.stochastic_encoder, self.config.tau)
        update_ema(self.target_prediction, self.prediction, self.config.tau)


def _metrics(scores: Tensor, divergence: Tensor, surprise: Tensor) -> dict[str, Tensor]:
    """Summarize scores ``[..., N, N]``, divergence ``[L, B]`` and surprise ``[L, B]``."""
    candidates = scores.shape[-1]
    loss = surprise.mean()
    return {
        "kl": divergence.mean(),
        "infonce": loss,
        "infonce_accuracy": accuracy(scores),
        "mutual_information_bound": math.log(candidates) - loss,
    }


class SIBE(Method):
    """SIBE as a method of SAC: the bottleneck's loss, and λ·InfoNCE as the bonus."""

    def __init__(
        self,
        features: int,
        action_dim: int,
        config: SIBEConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config, self.sees_sensors = config, config.sensors == "cross"
        self.predicts_frame = config.predicts == "frame"
        self.bottleneck = SequentialBottleneck(features, action_dim, config, generator=generator)

    def forward(self, x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        """Return α·KL + InfoNCE, r* = λ·InfoNCE ``[L, B]`` and the bottleneck's metrics."""
        out: BottleneckOutput = self.bottleneck(x.c, x.action, x.c_next, generator)
        bonus = self.config.intrinsic * out.infonce.detach()
        return MethodOutput(out.loss, bonus, {**out.metrics, "bonus": bonus.mean()})

    def sensor_loss(
        self, x: Latents, alone: SensorLatents, generator: torch.Generator | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return InfoNCE + α·KL across sensors, and both terms as metrics."""
        terms = cross_sensor_terms(self.bottleneck, x, alone, generator)
        loss = terms.infonce + self.config.alpha * terms.kl
        return loss, {"cross_infonce": terms.infonce.detach(), "cross_kl": terms.kl.detach()}

    @torch.no_grad()
    def embed(self, c: Tensor) -> dict[str, Tensor]:
        """Return z: the mean of g_o(z|c) ``[..., latent]``."""
        return {"z": self.bottleneck.encode(c)}

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return g_o, q_ψ, d_υ, f_o and ω at the learning rate of the heads."""
        return one_group(self, self.config.lr)

    def update_targets(self) -> None:
        """Move g_m and f_m towards g_o and f_o by τ (Eq. ema)."""
        self.bottleneck.update_targets()
