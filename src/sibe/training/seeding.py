"""All random streams of a run from one seed, by name, and their states for checkpoints."""

from __future__ import annotations

import json

import numpy as np
import torch

from sibe.envs.seeding import stream_seed


def numpy_stream(seed: int, name: str) -> np.random.Generator:
    """Return the NumPy generator of the stream called ``name``."""
    return np.random.Generator(np.random.PCG64(stream_seed(seed, name)))


def torch_stream(seed: int, name: str) -> torch.Generator:
    """Return the torch generator of the stream called ``name``.

    It lives on the CPU: noise is drawn there and moved, so one seed means the same everywhere.
    """
    return torch.Generator().manual_seed(stream_seed(seed, name))


def numpy_state(rng: np.random.Generator) -> str:
    """Return the state as text (its integers are too wide for a tensor)."""
    return json.dumps(rng.bit_generator.state)


def restore_numpy(rng: np.random.Generator, state: str) -> None:
    """Continue from what ``numpy_state`` returned."""
    rng.bit_generator.state = json.loads(state)
