"""From a config to the agent it describes: SAC with a method, or an agent of its own."""

from __future__ import annotations

import torch

from sibe.agents.protocol import Agent
from sibe.agents.sac.agent import SAC
from sibe.catalogue.registry import AGENTS
from sibe.config.schema import RunConfig


def build_agent(
    config: RunConfig, action_dim: int, generator: torch.Generator, device: torch.device
) -> Agent:
    """Build the agent; ``generator`` draws its initial weights and all noise of its updates."""
    if config.method in AGENTS:
        agent: Agent = AGENTS[config.method].build(config, action_dim, generator, device)
        return agent
    return SAC(config, action_dim, generator, device)
