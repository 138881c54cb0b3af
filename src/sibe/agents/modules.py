"""Networks and optimizers from a checkpoint that may be damaged or hostile.

PyTorch compares names and sizes of networks; of an optimizer it takes whatever is stored, and the
first update would fail. So that is compared here. What does not fit is a ValueError, TypeError,
KeyError or RuntimeError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

_MOMENTS_OF_ADAM = {"step", "exp_avg", "exp_avg_sq"}
_HOW_IT_IS_COMPUTED = ("fused", "foreach")


def load_modules(modules: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Give networks and optimizers what ``state`` has under their names."""
    for name, module in modules.items():
        if isinstance(module, torch.optim.Optimizer):
            # Before loading: what this refuses must not be what the next one is compared with.
            _check_settings(name, module, state[name])
            _check_moments(name, module, state[name])
        module.load_state_dict(state[name])


def broken_network(networks: Mapping[str, nn.Module]) -> str | None:
    """Return the name of the first network with a weight that is not finite, if there is one."""
    for name, network in networks.items():
        if not all(bool(torch.isfinite(p).all()) for p in network.parameters()):
            return name
    return None


def _check_settings(name: str, optimizer: torch.optim.Optimizer, stored: Any) -> None:
    groups = optimizer.state_dict()["param_groups"]
    for own, group in zip(groups, stored["param_groups"], strict=True):
        if not _kinds(group).items() <= _kinds(own).items():
            raise ValueError(f"the settings of {name} have other types")
        if group["params"] != own["params"]:
            raise ValueError(f"{name} is that of other parameters")
        for key, value in group.items():
            # Rates may have been changed by a method's schedule; no schedule turns these around.
            turned = type(value) is bool and key not in _HOW_IT_IS_COMPUTED and value != own[key]
            numbers = value if isinstance(value, tuple) else (value,)
            below = any(type(n) in (int, float) and not 0 <= n < math.inf for n in numbers)
            if turned or below:
                raise ValueError(f"{key} of {name} is {value}")


def _kinds(group: dict[str, Any]) -> dict[str, str]:
    # A whole number may stand for a float: betas of (0, 0.999).
    return {
        key: "number" if type(value) in (int, float) else type(value).__name__
        for key, value in group.items()
    }


def _check_moments(name: str, optimizer: torch.optim.Optimizer, stored: Any) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, moments in stored["state"].items():
        if isinstance(optimizer, torch.optim.Adam) and not moments.keys() >= _MOMENTS_OF_ADAM:
            raise ValueError(f"{name} lacks a moment")
        for key, value in moments.items():
            fits = isinstance(value, Tensor) and value.shape in (parameters[index].shape, ())
            if not fits or not bool(torch.isfinite(value).all()):
                raise ValueError(f"{key} of {name} does not fit its parameter")
