"""InfoNCE: how well a query picks its own key out of all the keys of a minibatch.

The loss bounds mutual information from below, I(query; key) ≥ log N - E[InfoNCE] with N
candidates, and per sample it is SIBE's measure of how surprising a transition was.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Bilinear(nn.Module):
    """The logarithm of the score function h_ω: queryᵀ ω key, ω a learned matrix."""

    def __init__(self, dim: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        # U[0, 1) as in CURL and its descendants, but over ``dim``. Undivided, unit-scale inputs of
        # dimension 50 get scores of std 29: a loss far above log N (and a bonus as much too
        # large) until they are unlearned. Divided, scores start below 1 at any width and the
        # loss at log N, and on a toy dynamical system it was learned as fast.
        self.weight = nn.Parameter(torch.rand(dim, dim, generator=generator) / dim)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Score all pairs: queries ``[..., N, D]``, keys ``[..., N, D]`` -> ``[..., N, N]``."""
        return query @ self.weight @ key.transpose(-1, -2)


def accuracy(scores: Tensor) -> Tensor:
    """Return how often a query scores its own key highest, ``[..., N, N] -> []``, no gradient."""
    own = torch.arange(scores.shape[-1], device=scores.device)
    return (scores.detach().argmax(-1) == own).to(scores.dtype).mean()


def infonce(scores: Tensor) -> Tensor:
    """Return the InfoNCE loss of every query, ``[..., N, N] -> [..., N]``.

    -log( h_ii / Σ_j h_ij ) with h = exp(scores), row i a query, column i its own key and the
    other columns its negatives (the equation of I_ω(z_{t+1}; z_t, a_t)). Never negative.
    """
    return scores.logsumexp(-1) - scores.diagonal(dim1=-2, dim2=-1)
