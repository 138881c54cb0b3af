"""PyTorch's Adam, stepping all parameters at once where there is a kernel for that."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sibe.kernels import parameters as kernels

_STATE = ("exp_avg", "exp_avg_sq", "step")


class Adam(torch.optim.Adam):
    """``torch.optim.Adam`` with its state and options; only ``step`` may be faster."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Do one step."""
        groups = [(group, self._tensors(group)) for group in self.param_groups]
        # PyTorch's own step also makes the states when there are none yet.
        if closure is not None or any(tensors is None for _, tensors in groups):
            return super().step(closure)
        for group, tensors in groups:
            assert tensors is not None
            kernels.adam(*tensors, lr=group["lr"], betas=group["betas"], eps=group["eps"])
        return None

    def _tensors(self, group: dict[str, Any]) -> list[list[Tensor]] | None:
        """Return the arguments of the kernel: what has a gradient, gradients and states.

        None if it cannot do this group.
        """
        parameters = [p for p in group["params"] if p.grad is not None]
        states = [self.state[p] for p in parameters if p in self.state]
        if len(states) < len(parameters) or any(
            group[name] for name in ("weight_decay", "amsgrad", "maximize")
        ):
            return None
        gradients = [p.grad for p in parameters]
        means, squares, steps = ([state[name] for state in states] for name in _STATE)
        if not kernels.fits(parameters, gradients, means, squares):
            return None
        return [parameters, gradients, means, squares, steps]
