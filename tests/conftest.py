"""What several test files share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sibe.envs.backgrounds.clips import Footage, write_bank

# Some virtual machines advertise AMX without having it: bfloat16 is then an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

CLIP_FRAMES = {"train-0": 5, "train-1": 7, "train-2": 1, "eval-0": 4, "eval-1": 3}


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small clip bank of 84×84 frames, no two of which share a byte pattern."""
    rng = np.random.default_rng(0)
    footage = [
        Footage(name, "", rng.integers(0, 256, (frames, 84, 84, 3), dtype=np.uint8))
        for name, frames in CLIP_FRAMES.items()
    ]
    out = tmp_path_factory.mktemp("clips") / "bank"
    write_bank(out, footage, lambda names: [n.split("-")[0] for n in names], kind="videos", size=84)
    return out
