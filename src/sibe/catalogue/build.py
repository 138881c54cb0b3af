"""From a config to the agent it describes."""

from __future__ import annotations

import torch

from sibe.agents.protocol import Agent
from sibe.agents.sac.agent import SAC
from sibe.catalogue.registry import find_agent
from sibe.config.schema import RunConfig


def build_agent(
    config: RunConfig,
    action_dim: int,
    generator: torch.Generator,
    device: torch.device,
    state_size: int = 0,
) -> Agent:
    """Build the agent; ``generator`` draws its initial weights and all noise of its updates.

    ``state_size`` is that of the sensor ``state``, 0 if there is none.
    """
    return find_agent(config.method).build(config, action_dim, generator, device, state_size)


def build_sac(
    config: RunConfig,
    action_dim: int,
    generator: torch.Generator,
    device: torch.device,
    state_size: int = 0,
) -> SAC:
    """Build an agent that is SAC with a method, for those who look inside it."""
    agent = build_agent(config, action_dim, generator, device, state_size)
    assert isinstance(agent, SAC)
    return agent
