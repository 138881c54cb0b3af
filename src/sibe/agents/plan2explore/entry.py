"""Plan2Explore as an agent of the catalogue."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from sibe.agents.entry import AgentEntry, require_sensors
from sibe.agents.plan2explore.agent import Plan2Explore
from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.agents.plan2explore.images import KERNEL, map_sizes
from sibe.agents.plan2explore.presets import with_preset
from sibe.config.schema import EncoderConfig, RunConfig, SACConfig
from sibe.errors import UserError
from sibe.replay.sampling import Sampling


def sampling(config: RunConfig) -> Sampling:
    """Return what an update draws: a sequence of T frames has T - 1 transitions; no shift."""
    own = config.method_config
    return Sampling(own.batch, own.sequence - 1, shift=0, every=own.update_every)


def check(config: RunConfig) -> None:
    """Refuse SAC's settings rather than ignore them, and stacked frames."""
    for name, unused in (("sac", SACConfig()), ("encoder", EncoderConfig())):
        if getattr(config, name) != unused:
            raise UserError(
                f"plan2explore is a standalone agent: --{name}.* does not apply to it; "
                "see --plan2explore.* in sibe train --method plan2explore --help"
            )
    if config.env.sensor_dropout:
        require_sensors("--sensor-dropout", config)
    if config.env.stack != 1:
        raise UserError("plan2explore is recurrent and takes single frames: use --stack 1")


class _Images(NamedTuple):
    """What the pictures of one camera come to, in numbers."""

    pixels: int
    maps: int
    """of the feature maps of an image"""
    embedding: int
    weights: int
    """of the convolutions of encoder and decoder"""


def _images(config: RunConfig) -> _Images:
    sides, depth = map_sizes(config.env.size), config.method_config.depth
    channels: list[int] = [3, *(depth * 2**i for i in range(len(sides) - 1))]
    maps = [side**2 * width for side, width in zip(sides, channels, strict=True)]
    weights = 2 * KERNEL**2 * sum(a * b for a, b in pairwise(channels))
    return _Images(maps[0], sum(maps[1:]), maps[-1], weights)


def checkpoint_bytes(config: RunConfig) -> int:
    """Return about the bytes of a checkpoint: all weights, and two moments of each."""
    own, seen = config.method_config, config.env.seen
    cameras = len(seen.views)
    images = _images(config) if cameras else _Images(0, 0, 0, 0)
    embedding = cameras * images.embedding + seen.state * own.hidden
    features = own.deterministic + own.stochastic
    recurrent = 3 * own.deterministic * (own.hidden + own.deterministic)
    # What reads features or embeddings, and the square layers inside.
    heads = own.hidden * (embedding + 7 * features + 12 * own.hidden)
    decoders = cameras * features * images.embedding
    vector = seen.state * own.hidden * (features + 2 * own.hidden)
    width = own.ensemble_hidden
    ensemble = own.members * width * (features + width + embedding)
    weights = cameras * images.weights + recurrent + heads + decoders + vector + ensemble
    return int(12 * weights + 1_000_000)


def update_bytes(config: RunConfig) -> int:
    """Return about the bytes of RAM that an update takes on the CPU.

    Encoder and decoder keep the feature maps of every frame for the backward pass, which adds a
    gradient of each. From every frame H steps are imagined, each of which keeps the hidden layers
    of dynamics, heads, actor and value, with gradients; the ensemble predicts an embedding for all
    of them, and its variance is taken in copies.
    """
    own, seen = config.method_config, config.env.seen
    cameras = len(seen.views)
    images = _images(config) if cameras else _Images(0, 0, 0, 0)
    embedding = cameras * images.embedding + seen.state * own.hidden
    frames = own.batch * own.sequence
    learned = frames * cameras * (2 * images.pixels + 4 * (4 * images.pixels + 4 * images.maps))
    learned += frames * seen.state * 4 * 16 * own.hidden
    imagined = frames * own.horizon
    dynamics = 4 * imagined * (16 * own.hidden + 12 * own.deterministic + 12 * own.stochastic)
    ensemble = 4 * imagined * own.members * (own.ensemble_hidden + 3 * embedding)
    return int(learned + dynamics + ensemble)


PLAN2EXPLORE = AgentEntry(
    agent="plan2explore",
    config=Plan2ExploreConfig,
    build=Plan2Explore,
    preset=with_preset,
    sampling=sampling,
    check=check,
    checkpoint_bytes=checkpoint_bytes,
    update_bytes=update_bytes,
    parts=(),
    bonus_field="intrinsic",
    label="Plan2Explore",
    color="#D55E00",
)
