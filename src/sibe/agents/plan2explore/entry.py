"""Plan2Explore as an agent of the catalogue."""

from __future__ import annotations

from itertools import pairwise

from sibe.agents.entry import AgentEntry
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
    if not config.env.seen.bare:
        raise UserError(
            "plan2explore sees the pixels of one camera alone: leave out --sensors and --cameras"
        )
    if config.env.sensor_dropout:
        raise UserError("plan2explore has one sensor, which it needs: leave out --sensor-dropout")
    if config.env.stack != 1:
        raise UserError("plan2explore is recurrent and takes single frames: use --stack 1")


def checkpoint_bytes(config: RunConfig) -> int:
    """Return about the bytes of a checkpoint: all weights, and two moments of each."""
    own: Plan2ExploreConfig = config.method_config
    sides = map_sizes(config.env.size)
    channels: list[int] = [3, *(own.depth * 2**i for i in range(len(sides) - 1))]
    embedding = sides[-1] ** 2 * channels[-1]
    features = own.deterministic + own.stochastic
    convolutions = 2 * KERNEL**2 * sum(a * b for a, b in pairwise(channels))
    recurrent = 3 * own.deterministic * (own.hidden + own.deterministic)
    # What reads features or embeddings, and the square layers inside.
    heads = own.hidden * (embedding + 7 * features + 12 * own.hidden) + features * embedding
    width = own.ensemble_hidden
    ensemble = own.members * width * (features + width + embedding)
    return 12 * (convolutions + recurrent + heads + ensemble) + 1_000_000


def update_bytes(config: RunConfig) -> int:
    """Return about the bytes of RAM that an update takes on the CPU.

    Encoder and decoder keep the feature maps of every frame for the backward pass, which adds a
    gradient of each. From every frame H steps are imagined, each of which keeps the hidden layers
    of dynamics, heads, actor and value, with gradients; the ensemble predicts an embedding for all
    of them, and its variance is taken in copies.
    """
    own: Plan2ExploreConfig = config.method_config
    frames, size = own.batch * own.sequence, config.env.size
    sides = map_sizes(size)
    maps: int = sum(side**2 * own.depth * 2**i for i, side in enumerate(sides[1:]))
    embedding: int = sides[-1] ** 2 * own.depth * 2 ** (len(sides) - 2)
    pixels = 3 * size**2
    learned = frames * (2 * pixels + 4 * (4 * pixels + 4 * maps))
    imagined = frames * own.horizon
    dynamics = 4 * imagined * (16 * own.hidden + 12 * own.deterministic + 12 * own.stochastic)
    ensemble = 4 * imagined * own.members * (own.ensemble_hidden + 3 * embedding)
    return learned + dynamics + ensemble


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
