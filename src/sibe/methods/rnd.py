"""RND, random network distillation: a bonus where a fixed random function is not yet learned.

A predictor is trained to reproduce the output of a random network on the states visited; where it
cannot, the state is new. There is no dynamics in it, so unpredictable outcomes are no trap (Burda
et al. 2019, "Exploration by Random Network Distillation").
"""

from __future__ import annotations

import torch
from torch import Tensor

from sibe.config.values import Count, NonNegative, Positive, configuration
from sibe.methods.base import Latents, Method, MethodOutput, ParameterGroup, one_group
from sibe.nn.ema import frozen_copy
from sibe.nn.mlp import mlp
from sibe.nn.running import RunningMoments


@configuration("rnd")
class RNDConfig:
    """Sizes of the two networks."""

    intrinsic: NonNegative = 0.1
    """Scale of the bonus, which comes in units of its own running spread; 0 for none."""
    latent: Count = 512
    """Dimension of the random network's output."""
    hidden: Count = 1024
    """Width of the two hidden layers of both networks."""
    lr: Positive = 1e-4
    """Learning rate of the predictor."""


def distillation_error(predicted: Tensor, target: Tensor) -> Tensor:
    """Return the squared error averaged over the last dimension, ``[..., D] -> [...]``."""
    return (predicted - target).square().mean(-1)


class RND(Method):
    """The predictor's error on c_{t+1}, as loss and as bonus. The encoder never feels it."""

    def __init__(
        self,
        features: int,
        action_dim: int,
        config: RNDConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        sizes = (features, config.hidden, config.hidden, config.latent)
        self.random = frozen_copy(mlp(sizes, generator=generator))
        self.predictor = mlp(sizes, generator=generator)
        self.inputs = RunningMoments((features,))
        self.spread = RunningMoments()

    def forward(self, x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        """Return the error and, scaled, the bonus ``[L, B]``. Draws nothing."""
        c_next = x.c_next.detach()
        self.inputs.update(c_next)
        state = self.inputs.standardize(c_next)
        error = distillation_error(self.predictor(state), self.random(state))
        bonus = self.config.intrinsic * self.spread.scale(error.detach())
        metrics = {"distillation_error": error.detach().mean(), "bonus": bonus.mean()}
        return MethodOutput(error.mean(), bonus, metrics)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return the predictor; the random network stays as it was drawn."""
        return one_group(self, self.config.lr)
