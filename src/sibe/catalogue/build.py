"""From a config to the agent it describes."""

from __future__ import annotations

import torch

from sibe.agents.protocol import Agent
from sibe.agents.sac.agent import SAC
from sibe.catalogue.registry import find_agent
from sibe.config.schema import RunConfig


def build_agent(
    config: RunConfig, action_dim: int, generator: torch.Generator, device: torch.device
) -> Agent:
    """Build the agent; ``generator`` draws its initial weights and all noise of its updates."""
    return find_agent(config.method).build(config, action_dim, generator, device)


def build_sac(
    config: RunConfig, action_dim: int, generator: torch.Generator, device: torch.device
) -> SAC:
    """Build an agent that is SAC with a method, for those who look inside it."""
    agent = build_agent(config, action_dim, generator, device)
    assert isinstance(agent, SAC)
    return agent
