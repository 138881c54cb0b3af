"""`sibe verify`: train for some seconds and compare with the result that is part of the package."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Verify:
    """Check that `sibe train --deterministic portable` computes here what it does elsewhere."""

    out: Path | None = None
    """Keep the run in this directory (default: a temporary one)."""

    def run(self) -> int:
        """Print the answer; 0 if all is equal, else 1."""
        if self.out is not None:
            return verify(self.out)
        with tempfile.TemporaryDirectory(prefix="sibe-verify-") as folder:
            return verify(Path(folder) / "run")


def verify(out: Path) -> int:
    """Make the reference run in ``out``, print how it compares, and return the exit code."""
    from sibe.training.reference_run import (
        differences,
        other_versions,
        read_reference,
        read_result,
        reference_config,
    )
    from sibe.training.run import train

    train(reference_config(), out)
    here, there = read_result(out), read_reference()
    print()
    if wrong := differences(here, there):
        print("differs from the reference result", *wrong, sep="\n  ")
        return 1
    print("identical to the reference result", *other_versions(here, there), sep="\n  ")
    return 0
