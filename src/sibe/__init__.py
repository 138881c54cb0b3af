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
    from sibe.api.result import TrainingResult
    from sibe.api.train import train
    from sibe.catalogue.presets import preset_config
    from sibe.config.schema import RunConfig
    from sibe.envs.factory import make_env
    from sibe.errors import UserError
    from sibe.methods.sibe import SequentialBottleneck, SIBEConfig
    from sibe.policy.load import load_policy
    from sibe.policy.trained_policy import TrainedPolicy
    from sibe.training.callbacks import Callback

__version__ = version("sibe")
__all__ = [
    "Callback",
    "RunConfig",
    "SIBEConfig",
    "SequentialBottleneck",
    "TrainedPolicy",
    "TrainingResult",
    "UserError",
    "__version__",
    "load_policy",
    "make_env",
    "preset_config",
    "train",
]

_HOMES = {
    "Callback": "sibe.training.callbacks",
    "RunConfig": "sibe.config.schema",
    "SIBEConfig": "sibe.methods.sibe",
    "SequentialBottleneck": "sibe.methods.sibe",
    "TrainedPolicy": "sibe.policy.trained_policy",
    "TrainingResult": "sibe.api.result",
    "UserError": "sibe.errors",
    "load_policy": "sibe.policy.load",
    "make_env": "sibe.envs.factory",
    "preset_config": "sibe.catalogue.presets",
    "train": "sibe.api.train",
}

register_all()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'sibe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
