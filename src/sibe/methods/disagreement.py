"""Disagreement: several one-step models, and a bonus where they do not agree.

Models that start differently come to agree on what they have all been shown, noise included: of
an unpredictable outcome they learn the same mean. Where they have not been, they disagree (Pathak
et al. 2019, "Self-Supervised Exploration via Disagreement"). This is the model-free form on SAC:
the models only pay for real transitions, nothing is imagined. It is not Plan2Explore.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from sibe.config.values import Bounds, Count, NonNegative, Positive, configuration
from sibe.methods.base import Latents, Method, MethodOutput, ParameterGroup, one_group
from sibe.nn.ensemble import Ensemble
from sibe.nn.running import RunningMoments


@configuration("disagreement")
class DisagreementConfig:
    """An ensemble of one-step models of c."""

    intrinsic: NonNegative = 0.1
    """Scale of the bonus, which comes in units of its own running spread; 0 for none."""
    members: Annotated[int, Bounds(2)] = 5
    """How many models."""
    hidden: Count = 1024
    """Width of the hidden layer of each."""
    lr: Positive = 1e-4
    """Learning rate of the models."""


def prediction_loss(predicted: Tensor, target: Tensor) -> Tensor:
    """Return the Euclidean error of predictions ``[M, ..., D]`` of ``[..., D]``, averaged."""
    error: Tensor = (predicted - target).norm(dim=-1)
    return error.mean()


def variance_over_models(predicted: Tensor) -> Tensor:
    """Return the unbiased variance over the M models, averaged over D: ``[M, ..., D] -> [...]``."""
    return predicted.var(0, correction=1).mean(-1)


class Disagreement(Method):
    """The ensemble's loss and, as the bonus, its variance. The encoder never feels either.

    If it did, making all states alike would be the quickest way to predict them.
    """

    def __init__(
        self,
        features: int,
        action_dim: int,
        config: DisagreementConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        sizes = (features + action_dim, config.hidden, features)
        self.models = Ensemble(sizes, config.members, generator=generator)
        self.spread = RunningMoments()

    def forward(self, x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        """Return the models' error and their variance, scaled, ``[L, B]``. Draws nothing."""
        joint = torch.cat((x.c.detach(), x.action), dim=-1)
        predicted: Tensor = self.models(joint)  # [M, L, B, D]
        loss = prediction_loss(predicted, x.c_next.detach())
        variance = variance_over_models(predicted.detach())
        bonus = self.config.intrinsic * self.spread.scale(variance)
        metrics = {
            "model_error": loss.detach(),
            "disagreement": variance.mean(),
            "bonus": bonus.mean(),
        }
        return MethodOutput(loss, bonus, metrics)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return all models."""
        return one_group(self, self.config.lr)
