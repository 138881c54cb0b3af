"""SAC with a method plugged in, as an agent of the catalogue."""

from __future__ import annotations

from typing import Any

import torch

from sibe.agents.entry import AgentEntry
from sibe.agents.protocol import Agent
from sibe.agents.sac.agent import SAC
from sibe.agents.sac.presets import with_preset
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.methods.base import Method
from sibe.methods.entry import Entry
from sibe.nn.encoder import conv_size
from sibe.replay.sampling import Sampling


def sac_entry(name: str, method: Entry) -> AgentEntry:
    """Return the agent that SAC with the method ``name`` is."""

    def build(
        config: RunConfig,
        action_dim: int,
        generator: torch.Generator,
        device: torch.device,
        state_size: int,
    ) -> Agent:
        def plug_in(features: int, actions: int, generator: torch.Generator) -> Method:
            return build_method(name, method, config.method_config, features, actions, generator)

        return SAC(config, action_dim, generator, device, plug_in, state_size)

    return AgentEntry(
        agent="sac",
        config=method.config,
        build=build,
        preset=lambda config: with_preset(config, method),
        sampling=sampling,
        check=check,
        checkpoint_bytes=checkpoint_bytes,
        parts=("encoder", "sac"),
        bonus_field=method.bonus_field,
        label=method.label or name,
        color=method.color,
    )


def check(config: RunConfig) -> None:
    """Refuse what needs several sensors where there is one."""
    across = getattr(config.method_config, "sensors", None) == "cross"
    needs = {"--sensor-dropout": config.env.sensor_dropout > 0, "--sibe.sensors cross": across}
    for flag, given in needs.items():
        if given and len(config.env.seen.names) < 2:
            raise UserError(f"{flag} needs two sensors or more: add --sensors pixels state")
    if config.encoder.share_cameras and not config.env.seen.cameras:
        raise UserError("--encoder.share-cameras needs several cameras: add --cameras 0 1")


def build_method(
    name: str,
    method: Entry,
    config: Any,
    features: int,
    action_dim: int,
    generator: torch.Generator | None,
) -> Method:
    """Build a method; ``config`` is its config, or None for the defaults."""
    config = method.config() if config is None else config
    if not isinstance(config, method.config):
        raise UserError(
            f"method {name!r} takes a {method.config.__name__}, not a {type(config).__name__}"
        )
    return method.build(features, action_dim, config, generator=generator)


def sampling(config: RunConfig) -> Sampling:
    """Return what an update of SAC draws: chunks long enough for the n-step target."""
    sac = config.sac
    late = config.encoder.fusion == "late" and config.env.seen.pixels
    frames = config.env.stack if late else 1
    return Sampling(sac.batch * sac.method_batch, sac.chunk + sac.n_step - 1, sac.shift, 1, frames)


def checkpoint_bytes(config: RunConfig) -> int:
    """Return about the bytes of a checkpoint: weights, targets, and two moments of each."""
    height, width = conv_size(config.env.size, config.encoder.strides)
    encoder = height * width * config.encoder.filters * config.encoder.features
    width_of_heads = getattr(config.method_config, "hidden", 0)
    # Square layers: of two critics and their targets and of the actor; of a method, about three.
    heads = 11 * config.sac.hidden**2 + 9 * width_of_heads**2
    return 4 * (4 * encoder + heads) + 1_000_000
