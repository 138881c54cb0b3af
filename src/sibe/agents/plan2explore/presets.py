"""Plan2Explore's presets: its authors' values, a small one for two cores, one for seconds."""

from __future__ import annotations

from dataclasses import replace

from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.config.schema import RunConfig

RANDOM_ENV_STEPS = 5000  # five episodes of the control suite
ENV_STEPS_PER_UPDATE = 10


def with_preset(config: RunConfig) -> RunConfig:
    """Return the config with what the preset named in it means for Plan2Explore."""
    repeat = config.env.action_repeat
    # The authors count in simulator steps, at an action repeat of 2 throughout.
    every = max(1, ENV_STEPS_PER_UPDATE // repeat)
    config = replace(
        config,
        env=replace(config.env, size=64, stack=1),
        method_config=Plan2ExploreConfig(update_every=every),
    )
    if config.preset == "paper":
        initial_steps = max(RANDOM_ENV_STEPS // repeat, 50)
        return replace(config, schedule=replace(config.schedule, initial_steps=initial_steps))
    return _cpu(config) if config.preset == "cpu" else _debug(config)


def _cpu(config: RunConfig) -> RunConfig:
    """Within an hour on two cores: 100 000 env steps of the cart-pole are 12 000 updates.

    A smaller picture has fewer pixels to outweigh the KL with, which is scaled down as they are.
    """
    return replace(
        config,
        env=replace(config.env, size=48),
        method_config=Plan2ExploreConfig(
            batch=16,
            sequence=16,
            update_every=1,
            horizon=10,
            deterministic=128,
            stochastic=24,
            hidden=128,
            depth=16,
            ensemble_hidden=128,
            kl_scale=0.5,
            model_lr=1e-3,
            actor_lr=2e-4,
            value_lr=2e-4,
        ),
    )


def _debug(config: RunConfig) -> RunConfig:
    """Every branch of the code in seconds; no claim to learn."""
    return replace(
        config,
        env=replace(config.env, size=32),
        method_config=Plan2ExploreConfig(
            batch=4,
            sequence=6,
            update_every=4,
            horizon=3,
            deterministic=16,
            stochastic=8,
            hidden=16,
            depth=4,
            ensemble_hidden=16,
        ),
    )
