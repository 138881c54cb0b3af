"""What this machine can do at best: single-precision matrix multiplication, and copying memory.

The limit of an update is its arithmetic at the first rate, the limit of sampling its bytes at the
second. Both are the best of several tries: a limit is what nothing exceeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch


class Machine(NamedTuple):
    """The two rates that everything else is held against."""

    matmul_flops: float
    """floating-point operations per second (a multiply-accumulate is two)"""
    copy_bytes: float
    """bytes read plus bytes written per second"""
    threads: int

    def best(self, other: Machine) -> Machine:
        """Return the higher of both rates: whatever disturbed a measurement made it lower."""
        flops = max(self.matmul_flops, other.matmul_flops)
        return Machine(flops, max(self.copy_bytes, other.copy_bytes), self.threads)


def measure_machine(sizes: tuple[int, ...], copied: int, tries: int) -> Machine:
    """Measure in this process, with its threads.

    Args:
        sizes: of the square matrices to multiply; the fastest counts.
        copied: bytes of the block to copy; much more than the caches hold.
        tries: of each.
    """
    flops = max(2 * size**3 / _best(multiply(size), tries) for size in sizes)
    source = torch.ones(copied, dtype=torch.uint8)
    target = torch.empty_like(source)
    rate = 2 * copied / _best(lambda: target.copy_(source), tries)
    return Machine(flops, rate, torch.get_num_threads())


def multiply(size: int) -> Callable[[], object]:
    """Return the work of multiplying two square matrices."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(size, size, generator=generator) for _ in range(2))
    out = torch.empty(size, size)
    return lambda: torch.mm(a, b, out=out)


def _best(function: Callable[[], object], tries: int) -> float:
    function()
    times = []
    for _ in range(tries):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)
