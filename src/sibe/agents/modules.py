"""Networks and optimizers from a checkpoint that may be damaged or hostile.

PyTorch compares names and sizes of networks; of an optimizer it takes whatever is stored, and the
first update would fail. So that is compared here. What does not fit is a ValueError, TypeError,
KeyError or RuntimeError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def load_modules(modules: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Give networks and optimizers what ``state`` has under their names."""
    for name, module in modules.items():
        if isinstance(module, torch.optim.Optimizer):
            # Before loading: what this refuses must not be what the next one is compared with.
            for own, stored in zip(module.param_groups, state[name]["param_groups"], strict=True):
                if not _kinds(stored).items() <= _kinds(own).items():
                    raise ValueError(f"the settings of {name} have other types")
            module.load_state_dict(state[name])
            _check_moments(name, module)
        else:
            module.load_state_dict(state[name])


def broken_network(networks: Mapping[str, nn.Module]) -> str | None:
    """Return the name of the first network with a weight that is not finite, if there is one."""
    for name, network in networks.items():
        if not all(bool(torch.isfinite(p).all()) for p in network.parameters()):
            return name
    return None


def _kinds(group: dict[str, Any]) -> dict[str, str]:
    # A whole number may stand for a float: betas of (0, 0.999).
    return {
        key: "number" if type(value) in (int, float) else type(value).__name__
        for key, value in group.items()
    }


def _check_moments(name: str, optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for key, value in optimizer.state.get(parameter, {}).items():
                fits = isinstance(value, Tensor) and value.shape in (parameter.shape, ())
                if not fits or not bool(torch.isfinite(value).all()):
                    raise ValueError(f"{key} of {name} does not fit its parameter")
