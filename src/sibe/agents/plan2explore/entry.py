"""Plan2Explore as an agent of the catalogue."""

from __future__ import annotations

from sibe.agents.entry import AgentEntry
from sibe.agents.plan2explore.agent import Plan2Explore
from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.agents.plan2explore.presets import with_preset
from sibe.config.schema import EncoderConfig, RunConfig, SACConfig
from sibe.errors import UserError
from sibe.replay.sampling import Sampling

_CHECKPOINT_BYTES = 270_000_000  # a world model and an ensemble at their authors' sizes


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
        raise UserError("plan2explore sees the pixels of one camera alone: leave out --sensors")
    if config.env.stack != 1:
        raise UserError("plan2explore is recurrent and takes single frames: use --stack 1")


PLAN2EXPLORE = AgentEntry(
    agent="plan2explore",
    config=Plan2ExploreConfig,
    build=Plan2Explore,
    preset=with_preset,
    sampling=sampling,
    check=check,
    checkpoint_bytes=lambda config: _CHECKPOINT_BYTES,
    parts=(),
    bonus_field="intrinsic",
    label="Plan2Explore",
    color="#D55E00",
)
