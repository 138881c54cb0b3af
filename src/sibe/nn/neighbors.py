"""Distances to the nearest neighbors in a set of points: how far a state is from those known.

Neighbors are *found* with one matrix product, twenty times faster than subtracting every pair,
and then *measured* by subtraction: the product alone gives points that coincide a distance of
about 1e-3 in single precision.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def nearest_distances(query: Tensor, points: Tensor, k: int, known: Tensor | None = None) -> Tensor:
    """Return the Euclidean distances to the k nearest points, ascending: ``[N, k]``, no gradient.

    Args:
        query: ``[N, D]``.
        points: ``[M, D]`` with M ≥ k.
        k: how many neighbors.
        known: bool ``[M]``: which points count (default: all). Where there are fewer than k, the
            missing distances are infinite.
    """
    with torch.no_grad():
        known = points.new_ones(len(points), dtype=torch.bool) if known is None else known
        # ‖x - p‖² without ‖x‖², which is the same for all points.
        score = torch.addmm(points.square().sum(-1), query, points.T, alpha=-2)
        score.masked_fill_(~known, math.inf)
        index = score.topk(k, largest=False).indices  # [N, k]
        distance: Tensor = (query[:, None] - points[index]).norm(dim=-1)
        return distance.masked_fill(~known[index], math.inf).sort(dim=-1).values
