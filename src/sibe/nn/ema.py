"""Target networks: frozen copies that follow their online counterparts slowly (Eq. ema)."""

from __future__ import annotations

from copy import deepcopy
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def frozen_copy(module: M) -> M:
    """Return a copy of ``module`` in evaluation mode, none of whose parameters take gradient."""
    copy = deepcopy(module).requires_grad_(False)
    return copy.eval()


@torch.no_grad()
def update_ema(target: nn.Module, online: nn.Module, tau: float) -> None:
    """Move the parameters of ``target`` in place: θ_m = τ θ_o + (1 - τ) θ_m.

    Parameters only: no network of this package keeps buffers. One fused call for all of them.
    """
    torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)
