"""SAC with a method plugged in, as an agent of the catalogue."""

from __future__ import annotations

from typing import Any

import torch

from sibe.agents.entry import AgentEntry, require_sensors
from sibe.agents.protocol import Agent
from sibe.agents.sac.agent import SAC
from sibe.agents.sac.presets import with_preset
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.methods.base import Method
from sibe.methods.entry import Entry
from sibe.nn.encoder import conv_size
from sibe.nn.late_encoder import POOLED
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
        update_bytes=update_bytes,
        parts=("encoder", "sac"),
        bonus_field=method.bonus_field,
        label=method.label or name,
        color=method.color,
    )


def check(config: RunConfig) -> None:
    """Refuse what needs several sensors where there is one, and groups that are not whole."""
    across = getattr(config.method_config, "sensors", None) == "cross"
    needs = {"--sensor-dropout": config.env.sensor_dropout > 0, "--sibe.sensors cross": across}
    for flag, given in needs.items():
        if given:
            require_sensors(flag, config)
    if config.encoder.share_cameras and not config.env.seen.cameras:
        raise UserError("--encoder.share-cameras needs several cameras: add --cameras 0 1")
    sac = config.sac
    if sac.batch % sac.group:
        raise UserError(f"--sac.batch must be a multiple of --sac.group, not {sac.batch}")
    if sac.group > 1 and not config.env.seen.pixels:
        raise UserError("--sac.group compares pictures: add the sensor pixels, or leave it out")


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
    batch, length = sac.batch * sac.method_batch, sac.chunk + sac.n_step - 1
    # The policy's input in the TD target comes from the online encoder if SAC learns from the first
    # transitions alone.
    ahead = sac.transitions == "first" and sac.n_step >= sac.chunk
    return Sampling(
        batch,
        length,
        sac.shift,
        1,
        frames,
        sac.group,
        sac.replay_ratio,
        online=sac.n_step + 1 if ahead else sac.chunk,
        target=1,
        least=sac.chunk,
    )


def checkpoint_bytes(config: RunConfig) -> int:
    """Return about the bytes of a checkpoint: weights, targets, and two moments of each."""
    height, width = conv_size(config.env.size, config.encoder.strides)
    cameras = len(config.env.seen.views)
    if config.encoder.share_cameras:
        cameras = min(cameras, 1)
    encoder = cameras * height * width * config.encoder.filters * config.encoder.features
    width_of_heads = getattr(config.method_config, "hidden", 0)
    # Square layers: of two critics and their targets and of the actor; of a method, about three.
    heads = 11 * config.sac.hidden**2 + 9 * width_of_heads**2
    return 4 * (4 * encoder + heads) + 1_000_000


def update_bytes(config: RunConfig) -> int:
    """Return about the bytes of RAM that an update takes on the CPU.

    The minibatch is there as bytes twice (this one, and the one before) and once as floats. Of the
    images for the online encoder every feature map is kept for the backward pass, which adds a
    gradient of each; those for the target encoder are encoded without. The hidden layers of actor,
    critics and method, with their gradients, are about 24 times their width for each transition.
    Some losses compare all pairs of a minibatch.
    """
    size, strides = config.env.size, config.encoder.strides
    filters, wanted = config.encoder.filters, sampling(config)
    sides = [conv_size(size, strides[: depth + 1])[0] for depth in range(len(strides))]
    maps = sum(side * side * filters for side in sides)
    late = config.encoder.fusion == "late"
    before = config.env.stack - 1 if late else 0  # frames that the first state needs, each encoded
    pixels = size * size * 3 * (1 if late else config.env.stack)
    if late:
        maps += (sides[-1] - 2) ** 2 * POOLED
    online = wanted.batch * (config.sac.chunk + before)
    target = wanted.batch * (wanted.length + before)
    stored = 2 * (online + target) * pixels
    images = 4 * (online * (pixels + 2 * maps) + target * (pixels + maps))
    transitions = wanted.batch * wanted.length
    width = config.sac.hidden + getattr(config.method_config, "hidden", 0)
    pairs = 0 if config.method == "none" else 4 * transitions**2
    cameras = len(config.env.seen.views)
    return cameras * (stored + images) + 4 * 24 * width * transitions + pairs
