"""Points on a grid: t-SNE makes a plane of a latent space, an exact assignment makes a grid of it.

Points of a t-SNE map overlap, and so would pictures drawn there. Each is given a cell of its own
such that the sum of squared moves is the least possible (a linear assignment problem, solved
exactly; 300 points take milliseconds).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from sibe.errors import UserError

_PERPLEXITY = 30.0  # van der Maaten and Hinton (2008) advise 5 to 50

Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[np.int64]


def tsne(latents: npt.NDArray[np.floating], seed: int) -> Floats:
    """Return a t-SNE map ``[N, 2]`` of latents ``[N, D]``; N above 90."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise UserError("t-SNE needs scikit-learn: pip install 'sibe[analysis]'") from error
    points = np.asarray(latents, np.float64)
    if points.std(axis=0).max() < 1e-12:
        raise UserError(
            "all observations have the same representation: there is nothing to lay out"
        )
    # Exact gradients: at a few hundred points they take seconds.
    model = TSNE(perplexity=_PERPLEXITY, init="pca", method="exact", random_state=seed)
    plane: Floats = model.fit_transform(points).astype(np.float64)
    return plane


def to_grid(points: Floats, columns: int, rows: int) -> Cells:
    """Return a cell (column, row) of its own for each point: ``[N, 2]``, N = columns · rows.

    The points ``[N, 2]`` are scaled to fill the grid; the sum of squared distances to the cells is
    the least of all N! ways.
    """
    if len(points) != columns * rows:
        raise ValueError(f"{len(points)} points for {columns}×{rows} cells")
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    scaled = (points - low) / span * [columns - 1, rows - 1]
    cells = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1).reshape(-1, 2)
    cost = ((scaled[:, None] - cells) ** 2).sum(axis=-1)
    _, chosen = linear_sum_assignment(cost)
    assigned: Cells = cells[chosen]
    return assigned


def distances(cells: Cells, pairs: npt.NDArray[np.int64]) -> Floats:
    """Return how many cells apart, as the crow flies, the two of each pair ``[M, 2]`` are."""
    apart = cells[pairs[:, 0]] - cells[pairs[:, 1]]
    length: Floats = np.sqrt((apart**2).sum(axis=-1))
    return length
