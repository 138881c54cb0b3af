"""Visual reinforcement learning that explores by task-relevant novelty.

The public names are loaded when they are first used, so ``import sibe`` stays quick. It registers
the environments ``sibe/<task>-<clean|noise|video>-v0`` with Gymnasium.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from sibe.envs.registration import register_all

if TYPE_CHECKING:
    from sibe.envs.factory import make_env
    from sibe.methods.sibe import SequentialBottleneck
    from sibe.policy.load import load_policy
    from sibe.training.run import train

__version__ = version("sibe")
__all__ = ["SequentialBottleneck", "__version__", "load_policy", "make_env", "train"]

_HOMES = {
    "SequentialBottleneck": "sibe.methods.sibe",
    "load_policy": "sibe.policy.load",
    "make_env": "sibe.envs.factory",
    "train": "sibe.training.run",
}

register_all()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'sibe' has no attribute {name!r}")
