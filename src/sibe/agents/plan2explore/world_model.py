"""The world model: encoder, RSSM and the heads that give its state a meaning, and their loss.

Loss = Σ over readings ½(x - x̂)² + ½(r - r̂)² + BCE(continue) + scale·max(KL, free nats), averaged
over sequences and frames: Dreamer's, with unit-variance Gaussians for pixels, vectors and reward.
What ends an episode is learned too, since not every environment is one of the control suite.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.agents.plan2explore.images import ConvDecoder, ConvEncoder
from sibe.agents.plan2explore.networks import elu_mlp
from sibe.agents.plan2explore.rssm import RSSM, Observed
from sibe.agents.plan2explore.sensors import JointDecoder, JointEncoder, to_inputs
from sibe.envs.sensors import STATE, Observation, Sensors
from sibe.nn.gaussian import Gaussian, kl, standard_normal
from sibe.nn.sensor_encoder import drop_sensors
from sibe.replay.chunk import Chunk

Metrics = dict[str, Tensor]


def image_loss(mean: Tensor, image: Tensor) -> Tensor:
    """Return -log N(x; x̂, 1) without its constant: ``[..., H, W, 3]`` twice -> ``[...]``."""
    return 0.5 * (mean - image).square().sum((-3, -2, -1))


def state_loss(mean: Tensor, vector: Tensor) -> Tensor:
    """Return -log N(x; x̂, 1) without its constant: ``[..., S]`` twice -> ``[...]``."""
    return 0.5 * (mean - vector).square().sum(-1)


def reconstruction_losses(means: Observation, inputs: Observation) -> Metrics:
    """Return ``image_loss``, summed over cameras, and ``state_loss``, means over frames.

    Those of them for which there is a sensor; ``inputs`` are what ``to_inputs`` gives.
    """
    if not isinstance(inputs, dict):
        return {"image_loss": image_loss(means, inputs).mean()}
    losses: Metrics = {}
    images = [
        image_loss(means[name], seen).mean() for name, seen in inputs.items() if name != STATE
    ]
    if images:
        losses["image_loss"] = torch.stack(images).sum()
    if STATE in inputs:
        losses["state_loss"] = state_loss(means[STATE], inputs[STATE]).mean()
    return losses


def kl_loss(
    posterior: Gaussian, prior: Gaussian, *, free_nats: float, balance: float
) -> tuple[Tensor, Tensor]:
    """Return what is minimized of the KL divergence and its plain mean; both scalars.

    max(mean KL(q ‖ p), free nats), as in Dreamer (Hafner et al. 2020, appendix A). ``balance``
    divides the gradient: 2·balance of it to the prior, 2·(1 - balance) to the posterior. At 0.5
    that is the plain KL; DreamerV2 (Hafner et al. 2021, Eq. 2 and Algorithm 2) took 0.8, and half
    the scale.
    """
    still_q, still_p = (Gaussian(g.mean.detach(), g.log_std.detach()) for g in (posterior, prior))
    to_prior = kl(still_q, prior).sum(-1).mean()
    to_posterior = kl(posterior, still_p).sum(-1).mean()
    value = to_prior.detach()
    shared = 2 * (balance * to_prior + (1 - balance) * to_posterior) - value
    return shared.clamp_min(free_nats), value


class ModelOutput(NamedTuple):
    """One pass over a minibatch of T frames."""

    loss: Tensor
    """scalar"""
    embedding: Tensor
    """e ``[T, B, E]`` of all sensors, dropped or not; carries gradient"""
    observed: Observed
    """states, posterior and prior, ``[T, B, …]``; they carry gradient"""
    metrics: Metrics
    """detached scalars"""


class WorldModel(nn.Module):
    """Encoder, RSSM, decoder, reward head and continuation head.

    In the zero-shot mode the reward head learns from detached features: what the model represents
    must not depend on the task.

    Args:
        config: sizes and weights of the losses.
        size: side of an image.
        action_dim: A.
        sensors: what an observation is made of.
        state_size: numbers of the sensor ``state``; 0 if there is none.
        dropout: share of the sensors that are hidden from the states while learning. All of them
            are still reconstructed: what is hidden has to be inferred from the rest.
        generator: draws the initial weights.
    """

    def __init__(
        self,
        config: Plan2ExploreConfig,
        size: int,
        action_dim: int,
        *,
        sensors: Sensors = Sensors(),  # noqa: B008 (immutable)
        state_size: int = 0,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config, self.sensors, self.dropout = config, sensors, dropout
        seen = sensors, size, state_size, config
        self.encoder: ConvEncoder | JointEncoder = (
            ConvEncoder(size, config.depth, generator=generator)
            if sensors.bare
            else JointEncoder(*seen, generator=generator)
        )
        self.rssm = RSSM(
            self.encoder.size,
            action_dim,
            deterministic=config.deterministic,
            stochastic=config.stochastic,
            hidden=config.hidden,
            generator=generator,
        )
        self.decoder: ConvDecoder | JointDecoder = (
            ConvDecoder(self.rssm.features, size, config.depth, generator=generator)
            if sensors.bare
            else JointDecoder(self.rssm.features, *seen, generator=generator)
        )
        sizes = (self.rssm.features, config.hidden, config.hidden, 1)
        self.reward_head = elu_mlp(sizes, generator=generator)
        self.continue_head = elu_mlp(sizes, generator=generator)

    def forward(self, chunk: Chunk, generator: torch.Generator | None) -> ModelOutput:
        """Return the loss of a chunk of T - 1 transitions, and all it computed on the way."""
        config = self.config
        inputs = to_inputs(chunk.obs)
        embedding = self.encoder(inputs)
        action = torch.cat((torch.zeros_like(chunk.action[:1]), chunk.action))
        shape = (*action.shape[:2], config.stochastic)
        noise = standard_normal(action.new_empty(shape), generator)
        seen = self._with_dropout(embedding, generator)
        observed: Observed = self.rssm.observe(seen, action, noise)
        features = observed.state.features
        arrived = features[1:]  # where each transition led
        reconstruction = reconstruction_losses(self.decoder(features), inputs)
        reward = self.reward(arrived.detach() if config.mode == "zero_shot" else arrived)
        reward_loss = 0.5 * (reward - chunk.reward).square().mean()
        logits = self.continue_head(arrived).squeeze(-1)
        continue_loss = F.binary_cross_entropy_with_logits(logits, chunk.discount)
        divergence, plain = kl_loss(
            *observed[1:], free_nats=config.free_nats, balance=config.kl_balance
        )
        readings = torch.stack(list(reconstruction.values())).sum()
        loss = readings + reward_loss + continue_loss + config.kl_scale * divergence
        metrics = {
            "model_loss": loss,
            **reconstruction,
            "reward_loss": reward_loss,
            "continue_loss": continue_loss,
            "kl": plain,
            "prior_std": observed.prior.std.mean(),
            "posterior_std": observed.posterior.std.mean(),
        }
        kept = {name: value.detach() for name, value in metrics.items()}
        return ModelOutput(loss, embedding, observed, kept)

    def embed(self, obs: Observation, missing: Tensor | None = None) -> Tensor:
        """Return e ``[N, E]`` of readings; ``missing [N, K]`` tells which sensors gave none."""
        embedding: Tensor = self.encoder(to_inputs(obs))
        if missing is None:
            return embedding
        if isinstance(self.encoder, JointEncoder):
            return self.encoder.without(embedding, missing)
        return embedding.masked_fill(missing, 0.0)

    def _with_dropout(self, embedding: Tensor, generator: torch.Generator | None) -> Tensor:
        if not self.dropout or not isinstance(self.encoder, JointEncoder):
            return embedding
        shape = (*embedding.shape[:-1], len(self.sensors.names))
        return self.encoder.without(
            embedding, drop_sensors(shape, self.dropout, generator, embedding.device)
        )

    def reward(self, features: Tensor) -> Tensor:
        """Return r̂ ``[...]`` of the transition that led to ``features [..., F]``."""
        reward: Tensor = self.reward_head(features).squeeze(-1)
        return reward

    def discount(self, features: Tensor) -> Tensor:
        """Return γ times the probability ``[...]`` that the episode goes on at ``features``."""
        goes_on: Tensor = self.continue_head(features).squeeze(-1).sigmoid()
        return self.config.discount * goes_on
