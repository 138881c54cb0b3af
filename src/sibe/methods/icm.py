"""ICM, the intrinsic curiosity module: surprise in a space of what the agent can influence.

An inverse model infers the action from features of s_t and s_{t+1}; the features it learns keep
what actions change and have no reason to keep the rest. A forward model predicts the next
features, and its error is the bonus (Pathak et al. 2017, "Curiosity-driven Exploration by
Self-supervised Prediction").
"""

from __future__ import annotations

import torch
from torch import Tensor

from sibe.config.values import Count, NonNegative, Positive, configuration
from sibe.methods.base import Latents, Method, MethodOutput, ParameterGroup, one_group
from sibe.nn.mlp import mlp
from sibe.nn.running import RunningMoments


@configuration("icm")
class ICMConfig:
    """Sizes of the two models and of the space between them."""

    intrinsic: NonNegative = 0.1
    """Scale of the bonus, which comes in units of its own running spread; 0 for none."""
    latent: Count = 50
    """Dimension of the inverse model's features."""
    hidden: Count = 1024
    """Width of the hidden layer of features, inverse and forward model."""
    lr: Positive = 1e-4
    """Learning rate of all three."""


def half_squared_error(predicted: Tensor, target: Tensor) -> Tensor:
    """Return ½‖predicted - target‖² over the last dimension, ``[..., D] -> [...]``."""
    return 0.5 * (predicted - target).square().sum(-1)


class ICM(Method):
    """L_I + L_F, and L_F of a transition as its bonus.

    L_I = ½‖â - a‖² trains the features and, through c_t, the encoder. L_F = ½‖f̂ - f(c_{t+1})‖²
    trains the forward model alone, so that features do not become what is easy to predict.
    """

    def __init__(
        self,
        features: int,
        action_dim: int,
        config: ICMConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        latent, hidden = config.latent, config.hidden
        # LayerNorm fixes the scale of the features, and so that of the forward error.
        self.features = mlp((features, hidden, latent), layer_norm=True, generator=generator)
        self.inverse_model = mlp((2 * latent, hidden, action_dim), generator=generator)
        self.forward_model = mlp((latent + action_dim, hidden, latent), generator=generator)
        self.spread = RunningMoments()

    def forward(self, x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        """Return L_I + L_F and the forward error, scaled, ``[L, B]``. Draws nothing."""
        now: Tensor = self.features(x.c)
        after: Tensor = self.features(x.c_next.detach())
        inferred = self.inverse_model(torch.cat((now, after), dim=-1))
        predicted = self.forward_model(torch.cat((now.detach(), x.action), dim=-1))
        inverse = half_squared_error(inferred, x.action).mean()
        surprise = half_squared_error(predicted, after.detach())
        bonus = self.config.intrinsic * self.spread.scale(surprise.detach())
        metrics = {
            "inverse_error": inverse.detach(),
            "forward_error": surprise.detach().mean(),
            "bonus": bonus.mean(),
        }
        return MethodOutput(inverse + surprise.mean(), bonus, metrics)

    @torch.no_grad()
    def embed(self, c: Tensor) -> dict[str, Tensor]:
        """Return z: the inverse model's features of c ``[..., latent]``."""
        return {"z": self.features(c)}

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return features, inverse and forward model."""
        return one_group(self, self.config.lr)
