"""Which compiled functions this machine computes sums with, in another order than PyTorch."""

from __future__ import annotations

from sibe.kernels import convolution, frame_convolutions


def in_use() -> list[str]:
    """Return their names."""
    modules = {"convolution": convolution, "frame_convolutions": frame_convolutions}
    return [name for name, module in modules.items() if module.available()]
