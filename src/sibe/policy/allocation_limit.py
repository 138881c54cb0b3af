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
        UserError: with the first tensor above it, before it is made.
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
        """Call ``func`` if there is room for what it makes."""
        given = dict(kwargs or {})
        if func in _MAKERS and "out" not in given:
            sizes = {name: value for name, value in given.items() if name != "generator"}
            try:
                self._left -= func(*args, **{**sizes, "device": "meta"}).nbytes
            except RuntimeError as error:  # more than can be counted
                raise _too_large() from error
            if self._left < 0:
                raise _too_large()
        return func(*args, **given)


def _too_large() -> UserError:
    return UserError(
        "its config.json describes networks far larger than its weights: get another copy of both"
    )
