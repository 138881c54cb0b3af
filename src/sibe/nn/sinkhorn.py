"""Sinkhorn-Knopp: soft assignments of samples to clusters in which all clusters share equally.

Without the balance every sample could be given to one cluster, which is no clustering at all
(Cuturi 2013; SwAV, Caron et al. 2020; Proto-RL, Yarats et al. 2021). Done on logarithms, so
that no temperature makes an exponential overflow or a whole row vanish.
"""

from __future__ import annotations

from torch import Tensor


def sinkhorn(scores: Tensor, iterations: int = 3) -> Tensor:
    """Return balanced assignments of N samples to K clusters: ``[N, K] -> [N, K]``.

    Starting from exp(scores), columns (clusters) are scaled to sum to N/K and rows (samples) to
    sum to 1, ``iterations`` times. Rows come last and sum to 1 exactly; columns approach N/K.
    Scores are similarities already divided by a temperature.
    """
    log_q = scores
    for _ in range(iterations):
        # Only the ratios within a column, then within a row, survive the last normalization:
        # the constant N/K need not be multiplied in.
        log_q = log_q - log_q.logsumexp(0, keepdim=True)
        log_q = log_q - log_q.logsumexp(1, keepdim=True)
    return log_q.exp()
