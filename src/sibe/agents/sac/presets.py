"""SAC's presets: the paper's values, small ones for two CPU cores, tiny ones for seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sibe.config.schema import EncoderConfig, RunConfig, SACConfig
from sibe.envs.tasks import VIDEOS
from sibe.methods.entry import Entry

_PAPER_BATCH = {"walker_walk": 128}


def with_preset(config: RunConfig, method: Entry) -> RunConfig:
    """Return the config with what the preset named in it means for SAC with a method."""
    config = replace(
        config,
        # Of a chunk, SAC learns from the first transition: without a method the rest is waste.
        sac=SACConfig(
            batch=_PAPER_BATCH.get(config.env.task, 256),
            chunk=1 if config.method == "none" else 2,
        ),
        method_config=method.config(),
    )
    if config.preset == "paper":
        return config
    return _cpu(config, method.cpu) if config.preset == "cpu" else _debug(config)


def _set(method_config: Any, **changes: Any) -> Any:
    """Return a method's config with those of the changes that it has a field for."""
    names = method_config.__dataclass_fields__
    return replace(method_config, **{n: v for n, v in changes.items() if n in names})


def _cpu(config: RunConfig, of_method: Mapping[str, Any]) -> RunConfig:
    """Small enough that two CPU cores show learning in minutes, for every background alike.

    Frames are encoded one by one and combined late, which finds velocities in a fraction of the
    updates; TD targets sum three rewards; SAC learns from every transition of a chunk, actor and
    targets move at every update. With rewards scaled down, the losses of critic and method weigh
    about the same in their plain sum. In front of a video, where no encoder of this size finds the
    robot by itself, the background is masked. docs/reproduction.md says how each was found.
    """
    return replace(
        config,
        encoder=EncoderConfig(
            fusion="late",
            filters=16,
            strides=(2, 2, 2, 1),
            lr=1e-3,
            center=True,
            smooth=True,
            foreground=config.env.background in VIDEOS,
        ),
        sac=SACConfig(
            hidden=256,
            batch=64,
            n_step=3,
            transitions="all",
            reward_scale=0.1,
            init_temperature=0.01,
            actor_every=1,
            target_every=1,
        ),
        method_config=replace(_set(config.method_config, hidden=256, lr=1e-3), **of_method),
    )


def _debug(config: RunConfig) -> RunConfig:
    """Every branch of the code in seconds; no claim to learn."""
    return replace(
        config,
        env=replace(config.env, size=32),
        encoder=EncoderConfig(features=16, filters=8, strides=(2, 1, 1, 1)),
        sac=SACConfig(hidden=32, batch=8, shift=2),
        method_config=_set(config.method_config, hidden=32, latent=16),
    )
