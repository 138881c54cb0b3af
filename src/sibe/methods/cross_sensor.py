"""SIBE over sensors: what one sensor says now must tell what another will say next.

Beside the joint loss, z_t of each sensor alone and the action pick out z_{t+1} of every other
sensor (InfoNCE), and z_{t+1} of each sensor alone is pressed towards what the joint z_t predicts of
it (KL). What only one sensor sees and nothing predicts earns nothing and costs. The derivation is
in docs/methods/sibe_sensors.md.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from sibe.methods.base import Latents, SensorLatents
from sibe.nn.contrastive import infonce
from sibe.nn.gaussian import Gaussian

if TYPE_CHECKING:
    from sibe.methods.sibe import SequentialBottleneck


class CrossSensorTerms(NamedTuple):
    """Scalars that carry gradient."""

    infonce: Tensor
    """mean over ordered pairs of two sensors and over transitions"""
    kl: Tensor
    """mean over sensors and transitions; without gradient if α is 0"""


def cross_sensor_terms(
    bottleneck: SequentialBottleneck,
    x: Latents,
    alone: SensorLatents,
    generator: torch.Generator | None,
) -> CrossSensorTerms:
    """Return the terms that K sensors add to the loss of the joint bottleneck, with its networks.

    Args:
        bottleneck: of the joint c; the c of a sensor alone lies in the same space.
        x: the joint c, and the actions.
        alone: c of each sensor alone.
        generator: draws all z.
    """
    # Jointly, then each sensor alone: [1 + K, L, B, latent].
    z: Gaussian = bottleneck.stochastic_encoder(torch.cat((x.c[None], alone.c)))
    actions = x.action.expand(len(z.mean), *x.action.shape)
    joint, *own = torch.cat((z.sample(generator), actions), dim=-1)
    with torch.no_grad():
        target: Gaussian = bottleneck.target_stochastic_encoder(alone.c_next)
        key = bottleneck.target_prediction(target.sample(generator))
    query = bottleneck.prediction(bottleneck.projection(torch.stack(own)))
    here, there = zip(*permutations(range(len(query)), 2), strict=True)
    scores = bottleneck.scores(query[list(here)], key[list(there)])
    divergence, _ = bottleneck.divergence(target, joint)
    return CrossSensorTerms(infonce(scores).mean(), divergence.mean())
