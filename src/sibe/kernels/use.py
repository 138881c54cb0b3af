"""What this machine computes in another order, or with other precision, than PyTorch by itself."""

from __future__ import annotations

from sibe.kernels import convolution, frame_convolutions, half_convolutions, matrix_products


def in_use(*, autocast: bool = False) -> list[str]:
    """Return the names of those functions, with those that autocast alone asks for."""
    modules = {
        "convolution": convolution,
        "frame_convolutions": frame_convolutions,
        "matrix_products": matrix_products,
    }
    if autocast:
        modules["half_convolutions"] = half_convolutions
    return [name for name, module in modules.items() if module.available()]
