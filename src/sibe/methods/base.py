"""What a method adds to SAC: a loss on the shared latents, a bonus, and what the actor sees.

The agent encodes every observation once and hands the result to its method. Writing a method
means one subclass of ``Method`` and one line in the registry; only ``forward`` must be written,
the other members default to "adds nothing".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor, nn


class Latents(NamedTuple):
    """L consecutive transitions of B chunks, encoded once by the agent and used by everyone."""

    c: Tensor
    """``[L, B, D]`` online φ_o(s_t), carries gradient"""
    c_next: Tensor
    """``[L, B, D]`` target φ_m(s_{t+1}), no gradient"""
    action: Tensor
    """``[L, B, A]``"""
    reward: Tensor
    """``[L, B]``"""


class SensorLatents(NamedTuple):
    """What c would be if one of K sensors alone were there, for each of them."""

    c: Tensor
    """``[K, L, B, D]`` online, carries gradient"""
    c_next: Tensor
    """``[K, L, B, D]`` target, no gradient"""


class MethodOutput(NamedTuple):
    """What the agent adds to its own loss and to the reward, and what it logs."""

    loss: Tensor
    """scalar; minimized together with the critic's loss"""
    bonus: Tensor
    """``[L, B]``, detached and already scaled: added to the reward of each transition"""
    metrics: dict[str, Tensor]
    """detached scalars by name"""


class ParameterGroup(TypedDict):
    """One group of an optimizer."""

    params: list[nn.Parameter]
    lr: float


class Method(nn.Module, ABC):
    """A method plugged into SAC. The docstrings below are the contract."""

    sees_next = True
    """Whether ``forward`` looks at ``c_next``; if not, the agent need not encode s_{t+1} for it."""
    predicts_frame = False
    """Whether ``c_next`` is to tell only what the newest frame of s_{t+1} does, the one that s_t
    does not hold."""
    sees_sensors = False
    """Whether the method has a ``sensor_loss``; it then needs two sensors or more."""

    @abstractmethod
    def forward(self, x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        """Return loss, bonus and metrics of a minibatch; all noise comes from ``generator``.

        The loss may send gradient into ``x.c`` (and so into the encoder), never into
        ``x.c_next``. Called once per update, before the parameters are stepped.
        """

    def sensor_loss(
        self, x: Latents, alone: SensorLatents, generator: torch.Generator | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a scalar to be minimized beside the loss of ``forward``, and metrics.

        Called right after ``forward``, of a method that ``sees_sensors``. The loss may send
        gradient into ``x.c`` and ``alone.c``.
        """
        raise NotImplementedError

    def policy_features(self, c: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return what the actor sees of c ``[..., D]``: a sample if given a generator, else mean.

        Default: c itself. Its last dimension is the size of the actor's input.
        """
        return c

    def actor_loss(self, x: Latents, generator: torch.Generator | None = None) -> Tensor | None:
        """Return a scalar to be minimized together with the actor's loss. Default: None, nothing.

        Called when the actor is updated, after critic, encoder and ``parameter_groups`` were
        stepped. Nothing in ``x`` carries gradient: the actor never moves the encoder.
        """
        return None

    def embed(self, c: Tensor) -> dict[str, Tensor]:
        """Return the method's own representations of c ``[..., D]``, by name, without gradient.

        For grids and probes; deterministic. Default: none.
        """
        return {}

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return what an optimizer should step and how fast, targets left out. Default: nothing."""
        return []

    def actor_parameter_groups(self) -> list[ParameterGroup]:
        """Return what the actor's optimizer steps beside the actor. Default: nothing.

        That is what ``policy_features`` is made of. No parameter may be in both kinds of groups.
        """
        return []

    def update_targets(self) -> None:
        """Move the method's target networks towards its online ones. Default: there are none."""


def one_group(method: Method, lr: float) -> list[ParameterGroup]:
    """Return all that the method trains (what takes gradient) as one group."""
    return [{"params": [p for p in method.parameters() if p.requires_grad], "lr": lr}]
