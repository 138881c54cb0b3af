"""RPC, robust predictable control: a policy that may use only so many nats of what it sees.

The actor acts on z ~ φ(z|c), and what z tells beyond what its past predicted is what the policy
uses: KL(φ(z_{t+1}|c_{t+1}) ‖ m(z_{t+1}|z_t, a_t)) nats per agent step. At the price λ they are
taken from the reward and added to the actor's loss; λ is the dual variable of the constraint
E[KL] ≤ C and finds its own value (Eysenbach, Salakhutdinov & Levine 2021). No exploration bonus:
what cannot be predicted costs.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor, nn

from sibe.config.values import Bounds, Count, NonNegative, Positive, configuration
from sibe.methods.base import Latents, Method, MethodOutput, ParameterGroup
from sibe.nn.gaussian import Gaussian, kl, soft_log_std
from sibe.nn.mlp import mlp

LOWEST_STD, HIGHEST_STD = 0.1, 10.0
FIRST_LOG_STD = -1.2  # of φ, before the bound: a third of the scale of the means
LAMBDA_RANGE = (1e-6, 1e6)


@configuration("rpc")
class RPCConfig:
    """What RPC's paper fixes, and how far the policy is constrained."""

    constraint: NonNegative = 150.0
    """C: nats per agent step that the policy may use; 150 is loose, a few nats are tight."""
    reward_cost: NonNegative = 1.0
    """Share of λ·KL that is taken from the reward; 0 leaves the cost to the actor's loss alone."""
    latent: Count = 50
    """Dimension of z, which the actor sees."""
    hidden: Count = 1024
    """Width of the hidden layers of φ and m."""
    lr: Positive = 1e-3
    """Learning rate of φ and m."""
    lambda_init: Annotated[float, Bounds(*LAMBDA_RANGE)] = 1e-6
    """First λ, reward per nat."""
    dual_lr: Positive = 3e-3
    """Learning rate of log λ: about how far it moves in an update."""


def gaussian(mean: Tensor, raw: Tensor) -> Gaussian:
    """Return N(mean, σ²) with σ between 0.1 and 10, and 1 where ``raw`` is 0; all ``[..., d]``.

    The floor is what makes nats count: without it φ could say all it likes ever more precisely.
    """
    return Gaussian(mean, soft_log_std(raw, math.log(LOWEST_STD), math.log(HIGHEST_STD)))


def dual_loss(log_lambda: Tensor, nats: Tensor, constraint: float) -> Tensor:
    """Return -log λ·(E[KL] - C), from ``nats [...]``: descending it raises λ while KL is above C.

    Shifted so that its value is 0 and only its gradient, which is wanted, is left.
    """
    return -(log_lambda - log_lambda.detach()) * (nats.detach().mean() - constraint)


class PolicyEncoder(nn.Module):
    """φ(z|c): ``[..., features]`` -> Gaussian ``[..., latent]``, the means normalized as c is."""

    def __init__(
        self, features: int, latent: int, hidden: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.network = mlp((features, hidden, 2 * latent), generator=generator)
        # Without it the means start at a fraction of the noise, and the actor sees noise.
        self.norm = nn.LayerNorm(latent)

    def forward(self, c: Tensor) -> Gaussian:
        """Return φ(z|c)."""
        mean, raw = self.network(c).chunk(2, dim=-1)
        return gaussian(self.norm(mean), raw + FIRST_LOG_STD)


class LatentModel(nn.Module):
    """m(z_{t+1}|z_t, a_t): z ``[..., latent]``, action ``[..., A]`` -> Gaussian ``[..., latent]``.

    The mean is z plus what the network adds, and it starts with adding nothing.
    """

    def __init__(
        self, latent: int, action_dim: int, hidden: int, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        sizes = (latent + action_dim, hidden, hidden, 2 * latent)
        self.network = mlp(sizes, generator=generator)
        nn.init.zeros_(self.network[-1].weight)  # type: ignore[arg-type]

    def forward(self, z: Tensor, action: Tensor) -> Gaussian:
        """Return m(·|z, a)."""
        change, raw = self.network(torch.cat((z, action), dim=-1)).chunk(2, dim=-1)
        return gaussian(z + change, raw)


class RPC(Method):
    """RPC as a method of SAC: φ learns with the actor, m with the critic, λ by dual ascent."""

    def __init__(
        self,
        features: int,
        action_dim: int,
        config: RPCConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.policy_encoder = PolicyEncoder(
            features, config.latent, config.hidden, generator=generator
        )
        self.model = LatentModel(config.latent, action_dim, config.hidden, generator=generator)
        self.log_lambda = nn.Parameter(torch.tensor(math.log(config.lambda_init)))

    def forward(self, x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        """Return the loss of m and λ, -λ·KL ``[L, B]`` as the bonus, and metrics."""
        with torch.no_grad():
            # Else a slack constraint would carry log λ off, and it would take as long to come back.
            self.log_lambda.clamp_(*map(math.log, LAMBDA_RANGE))
            z, seen = self._observe(x, generator)
        predicted: Gaussian = self.model(z, x.action)
        nats = kl(seen, predicted).sum(-1)
        loss = nats.mean() + dual_loss(self.log_lambda, nats, self.config.constraint)
        price = self.log_lambda.detach().exp()
        bonus = -self.config.reward_cost * price * nats.detach()
        return MethodOutput(
            loss,
            bonus,
            {
                "kl": nats.detach().mean(),
                "bits": nats.detach().mean() / math.log(2),
                "lambda": price,
                "std_phi": seen.std.mean(),
                "std_m": predicted.std.detach().mean(),
                "bonus": bonus.mean(),
            },
        )

    def actor_loss(self, x: Latents, generator: torch.Generator | None = None) -> Tensor:
        """Return λ·E[KL]; its gradient reaches φ(z_{t+1}|c_{t+1}), neither z_t nor m nor λ."""
        z, seen = self._observe(x, generator)
        with torch.no_grad():
            predicted: Gaussian = self.model(z, x.action)
        return self.log_lambda.detach().exp() * kl(seen, predicted).sum(-1).mean()

    def _observe(self, x: Latents, generator: torch.Generator | None) -> tuple[Tensor, Gaussian]:
        """Return a sample z_t ``[L, B, d]``, without gradient, and φ(z_{t+1}|c_{t+1})."""
        with torch.no_grad():
            past: Gaussian = self.policy_encoder(x.c)
        seen: Gaussian = self.policy_encoder(x.c_next)
        return past.sample(generator), seen

    def policy_features(self, c: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return z ``[..., d]``: a sample of φ(z|c) if given a generator, else its mean."""
        z: Gaussian = self.policy_encoder(c)
        return z.mean if generator is None else z.sample(generator)

    @torch.no_grad()
    def embed(self, c: Tensor) -> dict[str, Tensor]:
        """Return z: the mean of φ(z|c) ``[..., d]``."""
        return {"z": self.policy_features(c)}

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return m, and log λ at a rate of its own."""
        return [
            {"params": list(self.model.parameters()), "lr": self.config.lr},
            {"params": [self.log_lambda], "lr": self.config.dual_lr},
        ]

    def actor_parameter_groups(self) -> list[ParameterGroup]:
        """Return φ, a part of the policy."""
        return [{"params": list(self.policy_encoder.parameters()), "lr": self.config.lr}]
