"""The task as EnvPool simulates and draws it, in C++: stock pictures, no background of ours.

Not a dependency: measured where somebody has installed it.
"""

from __future__ import annotations

import ctypes
import importlib.util
from typing import Any

import numpy as np

from sibe.config.schema import EnvConfig


def has_envpool() -> bool:
    """Tell whether EnvPool is installed."""
    return importlib.util.find_spec("envpool") is not None


def make_envpool(config: EnvConfig, seed: int) -> Any:
    """Return one environment of EnvPool, with the task, size, stack and repeat of ``config``."""
    # Its MuJoCo looks for OpenGL among the symbols of the process, and loads no library itself.
    ctypes.CDLL("libEGL.so.1", mode=ctypes.RTLD_GLOBAL)
    import envpool

    name = "".join(part.capitalize() for part in config.task.split("_"))
    env = envpool.make_gymnasium(
        f"{name}-v1",
        num_envs=1,
        num_threads=1,
        seed=seed,
        from_pixels=True,
        frame_skip=config.action_repeat,
        frame_stack=config.stack,
        render_height=config.size,
        render_width=config.size,
    )
    pixels = env.reset()[0]
    assert pixels.shape == (1, 3 * config.stack, config.size, config.size)
    assert pixels.dtype == np.uint8
    return env
