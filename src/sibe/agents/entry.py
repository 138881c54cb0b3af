"""What makes a class an agent: how it is configured, built, preset, fed and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from sibe.agents.protocol import Agent
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.replay.sampling import Sampling


def require_sensors(flag: str, config: RunConfig) -> None:
    """Refuse ``flag`` where there is one sensor alone."""
    if len(config.env.seen.names) < 2:
        raise UserError(f"{flag} needs two sensors or more: add --sensors pixels state")


class AgentEntry(NamedTuple):
    """An agent by name: SAC with one method plugged in, or a standalone agent."""

    agent: str
    """which agent learns: methods on one agent take about the same time"""
    config: type[Any]
    """frozen dataclass of what ``--<name>.*`` sets; every field has a default and a docstring"""
    build: Callable[[RunConfig, int, torch.Generator, torch.device, int], Agent]
    """takes the run, A, the generator of weights and noise, the device, and the size of the sensor
    ``state``, 0 if there is none"""
    preset: Callable[[RunConfig], RunConfig]
    """completes a config that has a preset, a task and the preset's schedule"""
    sampling: Callable[[RunConfig], Sampling]
    """what an update draws from the replay, and how often there is one"""
    check: Callable[[RunConfig], None]
    """refuses values that do not go together"""
    checkpoint_bytes: Callable[[RunConfig], int]
    """about the size of a checkpoint"""
    update_bytes: Callable[[RunConfig], int]
    """about the RAM that an update on the CPU takes: minibatch, activations and their gradients"""
    parts: tuple[str, ...]
    """parts of the run's config that it uses beside env and schedule: those have flags"""
    bonus_field: str | None
    """field of the config that scales the bonus, 0 for none; None: there is no bonus"""
    label: str
    """what tables and figures call it"""
    color: str | None
    """of its curves, as #RRGGBB; None for the next free one"""
