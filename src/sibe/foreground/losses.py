"""What pairs of frames with one background, and robots pasted onto others, tell of the pixels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

CHANGED = 8
"""Two pixels differ if a channel differs by more."""


def differs(a: Tensor, b: Tensor) -> Tensor:
    """Return where frames uint8 ``[..., H, W, 3]`` show something else: bool ``[..., H, W]``."""
    return (a.int() - b.int()).abs().amax(-1) > CHANGED


def pair_loss(odds_a: Tensor, odds_b: Tensor, different: Tensor) -> Tensor:
    """Return -log P(what two frames with one background share), averaged over all pixels.

    With p the probability that a pixel shows the robot: where the frames differ, at least one of
    them shows it, 1 - (1 - p_a)(1 - p_b); where they do not, neither does, (1 - p_a)(1 - p_b).

    Args:
        odds_a, odds_b: log-odds of p, ``[N, H, W]``.
        different: bool ``[N, H, W]``.
    """
    neither = -F.softplus(odds_a) - F.softplus(odds_b)  # log (1 - p_a)(1 - p_b)
    either = torch.log(-torch.expm1(neither.clamp(max=-1e-6)))
    return -torch.where(different, either, neither).mean()


def pasted_loss(odds: Tensor, robot: Tensor, unsure: Tensor) -> Tensor:
    """Return the cross-entropy of robots that were pasted, averaged over all pixels.

    Args:
        odds: log-odds, ``[N, H, W]``.
        robot: bool, the pixels that were pasted.
        unsure: bool, pixels that do not count: the rim, where robot and background mix.
    """
    loss = F.binary_cross_entropy_with_logits(odds, robot.to(odds.dtype), reduction="none")
    return loss.masked_fill(unsure, 0.0).mean()


def rim(robot: Tensor) -> Tensor:
    """Return the pixels next to ``robot`` bool ``[N, H, W]`` that are not part of it."""
    grown = F.max_pool2d(robot[:, None].float(), 3, stride=1, padding=1)[:, 0] > 0
    return grown & ~robot
