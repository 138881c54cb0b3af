"""Matrix products on AMD's processors with AVX-512, at twice the speed.

PyTorch multiplies matrices by Intel's MKL, which leaves AVX-512 aside where the processor is not
Intel's. oneDNN, which comes with PyTorch as well, uses it, but is only asked if it may round to
bfloat16. It does so in the matrix units (AMX) that these processors do not have, and otherwise
computes in float32: that is looked at before it is relied on.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import torch

SETTING: Any = getattr(torch.backends.mkldnn, "matmul", None)  # since PyTorch 2.9


@functools.cache
def available() -> bool:
    """Whether this machine gains by it and loses no precision."""
    if os.environ.get("SIBE_KERNELS") == "0" or SETTING is None:
        return False
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not _is_amd_without_amx():
        return False
    return _as_precise_as_float32()


def use_onednn() -> None:
    """Have PyTorch multiply matrices by oneDNN in this process, if it is ``available``."""
    if available():
        SETTING.fp32_precision = "bf16"


def _is_amd_without_amx() -> bool:
    try:
        words = set(Path("/proc/cpuinfo").read_text(errors="replace").split())
    except OSError:
        return False
    return "AuthenticAMD" in words and not any(word.startswith("amx") for word in words)


def _as_precise_as_float32() -> bool:
    """Compare a product with one in double precision: bfloat16 would be off by about 10⁻²."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 64, generator=generator) for _ in range(2))
    before = SETTING.fp32_precision
    SETTING.fp32_precision = "bf16"
    try:
        error = (a @ b).double() - a.double() @ b.double()
    finally:
        SETTING.fp32_precision = before
    return bool(error.abs().max() < 1e-4)
