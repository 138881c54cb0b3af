"""Imagination: trajectories of the world model under a policy, and what they are worth.

Pure functions. H steps from N states; everything is ``[H, N, …]`` or, with the state it started
from, ``[H+1, N, …]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sibe.agents.plan2explore.rssm import RSSM, State
from sibe.nn.gaussian import standard_normal


class Imagined(NamedTuple):
    """N trajectories of H steps."""

    features: Tensor
    """``[H+1, N, F]``, the start included"""
    action: Tensor
    """``[H, N, A]``"""


def imagine(
    rssm: RSSM,
    start: State,
    policy: Callable[[Tensor], Tensor],
    horizon: int,
    generator: torch.Generator | None,
) -> Imagined:
    """Follow ``policy`` (features ``[N, F]`` -> actions ``[N, A]``) from ``start [N, …]``.

    Gradients flow back through actions and dynamics. The policy sees detached features, as in
    Dreamer: an action is judged by what it leads to, not by how it changes later inputs.
    """
    state, features, actions = start, [start.features], []
    for _ in range(horizon):
        action = policy(features[-1].detach())
        state = rssm.imagine_step(state, action, standard_normal(state.stoch, generator))
        actions.append(action)
        features.append(state.features)
    return Imagined(torch.stack(features), torch.stack(actions))


def lambda_returns(reward: Tensor, discount: Tensor, value: Tensor, lambda_: float) -> Tensor:
    """Return V_t = r_t + γ_t ((1 - λ) v_{t+1} + λ V_{t+1}), V_H = v_H, for t < H.

    Args:
        reward: of each step, ``[H, ...]``.
        discount: γ_t, 0 where the step ends the episode, ``[H, ...]``.
        value: of each state, the last one included, ``[H+1, ...]``.
        lambda_: 0 is one step and then the value, 1 is all rewards and the last value.
    """
    returns, last = [], value[-1]
    one_step = reward + discount * (1 - lambda_) * value[1:]
    for now, gamma in zip(one_step.unbind()[::-1], discount.unbind()[::-1], strict=True):
        last = now + lambda_ * gamma * last
        returns.append(last)
    return torch.stack(returns[::-1])


def path_weights(discount: Tensor) -> Tensor:
    """Return the weight of each state of a path: 1, γ_0, γ_0 γ_1, … ``[H, ...] -> [H, ...]``."""
    return torch.cat((torch.ones_like(discount[:1]), discount[:-1])).cumprod(0)
