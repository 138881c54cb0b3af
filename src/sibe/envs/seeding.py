"""Seeds for environments: one number from the user, independent streams for each purpose."""

from __future__ import annotations

import zlib

import numpy as np

from sibe.errors import UserError


def stream_seed(seed: int, *names: str | int) -> int:
    """Return the 32-bit seed of the stream called ``names`` under ``seed``.

    Different names give independent streams, so a training and an evaluation environment that
    were given the same number still live different lives.
    """
    if seed < 0:
        raise UserError(f"a seed must be 0 or more, not {seed}")
    key = [zlib.crc32(str(name).encode()) for name in names]
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0])
