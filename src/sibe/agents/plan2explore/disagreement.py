"""The bonus of Plan2Explore: the disagreement of K one-step models about what will be seen next.

Each model predicts the embedding of the next frame from (features, action); each is trained on a
resample of the minibatch of its own. Where experience is plenty they agree, noise included: they
all learn the same mean. Their variance, mean over dimensions, is what is left to be learned
(Sekar et al. 2020, Eq. 1). Neither the loss nor the bonus sends a gradient to its inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.nn.ensemble import Ensemble


def disagreement(predictions: Tensor) -> Tensor:
    """Return the variance over members, mean over dimensions: ``[K, ..., E] -> [...]``."""
    # Written out: ``var`` over the first dimension takes a tenth of a whole update on a CPU.
    return (predictions - predictions.mean(0)).square().mean((0, -1))


class EnsembleDisagreement(nn.Module):
    """The ensemble; F features, E the size of an embedding."""

    def __init__(
        self,
        config: Plan2ExploreConfig,
        features: int,
        action_dim: int,
        embedding: int,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        hidden = config.ensemble_hidden
        sizes = (features + action_dim, hidden, hidden, embedding)
        self.scale = config.disagreement_scale
        self.ensemble = Ensemble(sizes, config.members, generator=generator)

    def loss(
        self,
        features: Tensor,
        action: Tensor,
        embedding: Tensor,
        generator: torch.Generator | None,
    ) -> Tensor:
        """Return the squared error, mean over dimensions and samples, sum over members.

        Args:
            features: at t, ``[N, F]``.
            action: at t, ``[N, A]``.
            embedding: of the frame at t + 1, ``[N, E]``.
            generator: draws each member's resample, with replacement.
        """
        inputs, target = torch.cat((features, action), -1).detach(), embedding.detach()
        device = inputs.device if generator is None else generator.device
        shape = (self.ensemble.members, len(inputs))
        pick = torch.randint(len(inputs), shape, generator=generator, device=device)
        pick = pick.to(inputs.device)
        errors: Tensor = self.ensemble(inputs[pick], own=True) - target[pick]
        return errors.square().mean((1, 2)).sum()

    @torch.no_grad()
    def bonus(self, features: Tensor, action: Tensor) -> Tensor:
        """Return the scaled disagreement ``[...]`` of taking ``action`` at ``features``."""
        predictions: Tensor = self.ensemble(torch.cat((features, action), -1))
        return self.scale * disagreement(predictions)
