"""One result for one seed: PyTorch's deterministic algorithms."""

from __future__ import annotations

import torch


def compute_deterministically() -> None:
    """Have PyTorch choose algorithms that give the same result every time; warn if one cannot."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    # It would also fill each new tensor with NaN before it is written: 2 % of an update. Nothing
    # here reads what it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
