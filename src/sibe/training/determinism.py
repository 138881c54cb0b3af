"""How a process that learns computes: its threads, and one result for one seed."""

from __future__ import annotations

import torch

from sibe.kernels.matrix_products import use_onednn


def compute_with(threads: int) -> None:
    """Set this process up for learning.

    PyTorch then chooses algorithms that give the same result every time, and warns if one cannot.
    """
    torch.set_num_threads(threads)
    use_onednn()
    torch.use_deterministic_algorithms(True, warn_only=True)
    # It would also fill each new tensor with NaN before it is written: 2 % of an update. Nothing
    # here reads what it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
