"""From a config to its environments."""

from __future__ import annotations

from dataclasses import replace

from sibe.config.schema import EnvConfig
from sibe.envs.factory import make_env
from sibe.envs.own_env import AnyEnv


def make_training_env(config: EnvConfig, own: AnyEnv | None = None) -> AnyEnv:
    """Return the training environment of a config, which observes single frames.

    The collector stacks them for the policy, the replay for the agent.
    """
    return make_configured_env(replace(config, stack=1), split="train", own=own)


def make_configured_env(config: EnvConfig, *, split: str, own: AnyEnv | None = None) -> AnyEnv:
    """Return the environment that a config describes, or ``own`` as the config wants it shown."""
    return make_env(
        config.task if own is None else own,
        config.background,
        size=config.size,
        supersample=config.supersample,
        stack=config.stack,
        action_repeat=config.action_repeat,
        camera=config.camera,
        cameras=config.cameras,
        sensors=config.sensors,
        split=split,
        clips=config.clips,
        loop_frames=config.loop_frames,
        keep_floor=config.keep_floor,
        noise_wrap=config.noise_wrap,
    )
