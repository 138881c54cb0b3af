"""From a config to what learns: environment, agent and replay."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import torch

from sibe.agents.protocol import Agent
from sibe.catalogue.build import build_agent
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.envs.sensor_space import reading_shapes, state_size
from sibe.replay.replay import Replay
from sibe.replay.seen_frames import Look
from sibe.training.environment import make_training_env
from sibe.training.own_envs import OwnEnvs
from sibe.training.seeding import torch_stream


class Parts(NamedTuple):
    """What learns, from what."""

    env: gym.Env[Any, Any]
    """observes single frames"""
    agent: Agent
    replay: Replay


def build_parts(config: RunConfig, device: torch.device, own: OwnEnvs | None = None) -> Parts:
    """Return the training environment, the agent and an empty replay of a run."""
    env = make_training_env(config.env, None if own is None else own.training)
    actions = env.action_space.shape
    assert actions is not None
    generator = torch_stream(config.seed, "agent")
    size = state_size(env.observation_space)
    agent = build_agent(config, actions[0], generator, device, size)
    look = None if agent.foreground is None else agent.foreground.masked
    return Parts(env, agent, build_replay(config, env, look))


def build_replay(config: RunConfig, env: gym.Env[Any, Any], look: Look | None = None) -> Replay:
    """Return an empty replay for the single frames of ``env``, seen through ``look``."""
    actions = env.action_space.shape
    assert actions is not None
    wanted = sampling(config)
    return Replay(
        config.schedule.replay_capacity,
        reading_shapes(env.observation_space),
        actions[0],
        stack=config.env.stack,
        pad=wanted.shift,
        groups=wanted.group > 1,
        look=look,
    )
