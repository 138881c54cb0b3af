"""A whole run of an earlier commit, kept as data, to compare the present one with.

The time of a run is mostly arithmetic, so that on another machine it is scaled by the ratio of the
two machines' rates of matrix multiplication, with the same number of threads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from sibe.bench.machine import Machine

_FILE = Path(__file__).with_name("baseline.json")


class Baseline(NamedTuple):
    """How long an agent step took, all told."""

    commit: str
    parts: dict[str, float]
    """seconds per agent step by part, as it would be on the machine that was asked about"""

    @property
    def seconds(self) -> float:
        """Of a whole agent step."""
        return sum(self.parts.values())


def baseline(preset: str, machine: Machine) -> Baseline | None:
    """Return the earlier run, scaled to ``machine``; None if there is none like it.

    Args:
        preset: of the run; cartpole_swingup with SIBE and noise, as all whole runs here.
        machine: its rates and its number of threads.
    """
    kept = json.loads(_FILE.read_text(encoding="utf-8"))
    run = kept["runs"].get(str(machine.threads))
    if run is None or preset != kept["preset"]:
        return None
    scale = run["matmul_flops"] / machine.matmul_flops
    return Baseline(kept["commit"], {part: scale * s for part, s in run["parts"].items()})
