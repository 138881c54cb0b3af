"""A limit on what building networks may allocate.

A config.json from elsewhere can ask for networks of any size, in a dozen fields and those of
plug-ins; filling them would take minutes and all memory before their weights turn out not to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from sibe.errors import UserError

_MAKERS = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.eye)


class AllocationLimit(TorchFunctionMode):
    """While this is entered, new tensors may have ``limit`` bytes in all.

    Raises:
        UserError: with the first tensor above it, before it is filled.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._left = limit

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call ``func``, then count what it made."""
        try:
            made = func(*args, **(kwargs or {}))
        except RuntimeError as error:
            if func in _MAKERS:  # more than there is, or than can be counted
                raise _too_large() from error
            raise
        if func in _MAKERS:
            self._left -= made.nbytes
            if self._left < 0:
                raise _too_large()
        return made


def _too_large() -> UserError:
    return UserError(
        "its config.json describes networks far larger than its weights: get another copy of both"
    )
