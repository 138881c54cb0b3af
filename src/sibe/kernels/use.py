"""What this machine computes sums with in another order than PyTorch by itself."""

from __future__ import annotations

from sibe.kernels import convolution, frame_convolutions, matrix_products


def in_use() -> list[str]:
    """Return the names of those functions."""
    modules = {
        "convolution": convolution,
        "frame_convolutions": frame_convolutions,
        "matrix_products": matrix_products,
    }
    return [name for name, module in modules.items() if module.available()]
