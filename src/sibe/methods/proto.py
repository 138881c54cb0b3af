"""Proto-RL: prototypes of the states seen, and a bonus for states far from known ones.

States are projected onto a sphere and softly assigned to learned prototypes. The representation
learns to predict, from s_t, the assignment of s_{t+1}, which Sinkhorn keeps balanced. A queue of
states, drawn by way of the prototypes, stands for what has been visited; the distance to the
third nearest of it is the bonus (Yarats et al. 2021, "Reinforcement Learning with Prototypical
Representations"). Here it rides on SAC with the task's reward from the start.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibe.config.values import Count, Fraction, NonNegative, Positive, configuration
from sibe.errors import UserError
from sibe.methods.base import Latents, Method, MethodOutput, ParameterGroup, one_group
from sibe.nn.ema import frozen_copy, update_ema
from sibe.nn.mlp import mlp
from sibe.nn.neighbors import nearest_distances
from sibe.nn.running import RunningMoments
from sibe.nn.sinkhorn import sinkhorn


@configuration("proto")
class ProtoConfig:
    """Proto-RL's constants; the defaults are those of its authors' code."""

    intrinsic: NonNegative = 0.2
    """Scale of the bonus, a distance on the unit sphere; 0 leaves only the representation."""
    latent: Count = 128
    """Dimension of the projection that prototypes live in."""
    hidden: Count = 512
    """Width of the predictor's hidden layer."""
    prototypes: Count = 512
    """How many prototypes, and the most states that one update adds to the queue."""
    queue: Count = 2048
    """Visited states that the bonus is measured against."""
    neighbors: Count = 3
    """The bonus is the distance to the neighbor of this rank."""
    temperature: Positive = 0.1
    """Temperature of the assignments to prototypes."""
    iterations: Count = 3
    """Rounds of Sinkhorn's balancing."""
    tau: Fraction = 0.05
    """Step of the target projection towards the online one."""
    lr: Positive = 1e-4
    """Learning rate of projection, predictor and prototypes."""

    def __post_init__(self) -> None:
        """Refuse a queue that cannot hold what is looked up in it."""
        if self.queue < max(self.prototypes, self.neighbors):
            raise UserError(
                f"--proto.queue must be at least the number of prototypes ({self.prototypes}) "
                f"and of neighbors ({self.neighbors}), not {self.queue}"
            )


def standardized(c: Tensor) -> Tensor:
    """Return c ``[N, D]`` with mean 0 and variance 1 over the minibatch in every dimension.

    The loss then cannot be lowered by moving all states closer together.
    """
    return (c - c.mean(0)) / (c.var(0, correction=0) + 1e-5).sqrt()


def assignment_loss(log_p: Tensor, q: Tensor) -> Tensor:
    """Return the cross-entropy -Σ_k q_k log p_k of assignments ``[N, K]``, averaged over N."""
    return -(q * log_p).sum(-1).mean()


def draw_per_prototype(similarity: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw a state for every prototype: similarity ``[N, K]`` -> indices ``[K]`` in 0 … N - 1.

    State i is drawn with probability softmax over the N states of (prototype · state). By
    inversion, one uniform number per prototype, drawn where the generator lives.
    """
    device = similarity.device if generator is None else generator.device
    uniform = torch.rand(similarity.shape[1], 1, generator=generator, device=device)
    cumulative = similarity.T.softmax(-1).cumsum(-1)
    drawn = torch.searchsorted(cumulative, uniform.to(similarity.device, similarity.dtype))
    return drawn.squeeze(-1).clamp_max(len(similarity) - 1)  # the sum may round to below 1


class Proto(Method):
    """Proto-RL as a method of SAC. The queue and its state are buffers: resuming is exact."""

    queue: Tensor
    position: Tensor
    filled: Tensor

    def __init__(
        self,
        features: int,
        action_dim: int,
        config: ProtoConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        latent = config.latent
        self.inputs = RunningMoments((features,), memory=config.queue)
        self.projector = mlp((features, latent), generator=generator)
        self.target_projector = frozen_copy(self.projector)
        self.predictor = mlp((latent, config.hidden, latent), generator=generator)
        drawn = torch.randn(config.prototypes, latent, generator=generator)
        self.prototypes = nn.Parameter(F.normalize(drawn, dim=-1))
        self.register_buffer("queue", torch.zeros(config.queue, latent))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))  # next to be written
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        """Return the assignment loss and the distance to known states, scaled, ``[L, B]``."""
        temperature = self.config.temperature
        prototypes = F.normalize(self.prototypes, dim=-1)
        projected = self.projector(standardized(x.c.flatten(0, 1)))
        source = F.normalize(self.predictor(projected), dim=-1)
        log_p = (source @ prototypes.T / temperature).log_softmax(-1)
        with torch.no_grad():
            target = self._target(x.c_next.flatten(0, 1))
            similarity = target @ prototypes.T
            q = sinkhorn(similarity / temperature, self.config.iterations)
            # Measured before the queue takes them in: a state is not its own neighbor.
            distance = self._distance(target).reshape(x.reward.shape)
            self._enqueue(target[draw_per_prototype(similarity, generator).unique()])
            usage = (similarity / temperature).softmax(-1).mean(0)
        loss = assignment_loss(log_p, q)
        bonus = self.config.intrinsic * distance
        metrics = {
            "neighbour_distance": distance.mean(),
            "prototypes_used": torch.special.entr(usage).sum().exp(),
            "queue_filled": self.filled / self.config.queue,
            "bonus": bonus.mean(),
        }
        return MethodOutput(loss, bonus, metrics)

    def _target(self, c_next: Tensor) -> Tensor:
        """Return the target projections ``[N, latent]`` of c_next ``[N, D]``.

        They are standardized by the minibatches before (the first one by itself), so that what is
        new does not depend on what else is in the minibatch.
        """
        first = not bool(self.inputs.count)
        if first:
            self.inputs.update(c_next)
        target = self._on_sphere(self.target_projector, c_next)
        if not first:
            self.inputs.update(c_next)
        return target

    def _on_sphere(self, projector: nn.Module, c: Tensor) -> Tensor:
        """Standardize c ``[..., D]`` by the running moments and project it to ``[..., latent]``."""
        return F.normalize(projector(self.inputs.standardize(c)), dim=-1)

    def _distance(self, z: Tensor) -> Tensor:
        """Distance of z ``[N, latent]`` to the k-th nearest known state; 0 while there are < k."""
        known = torch.arange(self.config.queue, device=z.device) < self.filled
        distances = nearest_distances(z, self.queue, self.config.neighbors, known)
        return distances[:, -1].nan_to_num(posinf=0.0)

    def _enqueue(self, z: Tensor) -> None:
        """Write z ``[n, latent]``, n at most the size of the queue, over its oldest states."""
        size = self.config.queue
        slots = (self.position + torch.arange(len(z), device=z.device)) % size
        self.queue.index_copy_(0, slots, z)
        self.position.add_(len(z)).remainder_(size)
        self.filled.add_(len(z)).clamp_(max=size)

    @torch.no_grad()
    def embed(self, c: Tensor) -> dict[str, Tensor]:
        """Return z: the projection of c on the unit sphere ``[..., latent]``."""
        return {"z": self._on_sphere(self.projector, c)}

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return projection, predictor and prototypes."""
        return one_group(self, self.config.lr)

    def update_targets(self) -> None:
        """Move the target projection towards the online one."""
        update_ema(self.target_projector, self.projector, self.config.tau)
