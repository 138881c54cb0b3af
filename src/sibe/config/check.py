"""Values that cannot work are refused before a run begins, by the name of their flag."""

from __future__ import annotations

import math

from sibe.catalogue.registry import AGENTS
from sibe.config.schema import EncoderConfig, RunConfig, SACConfig, sampling
from sibe.errors import UserError

MOST_THREADS = 1024


_POSITIVE: dict[str, tuple[str, ...]] = {
    "env": ("size", "supersample", "stack", "action_repeat", "loop_frames"),
    "schedule": (
        *("env_steps", "initial_steps", "eval_every", "eval_episodes"),
        "checkpoint_every",
    ),
}
_POSITIVE_IN_SAC = {
    "encoder": ("features", "filters", "lr"),
    "sac": (
        *("hidden", "chunk", "n_step", "method_batch", "lr", "temperature_lr", "init_temperature"),
        *("reward_scale", "actor_every", "target_every"),
    ),
}


def _refuse_unless_positive(config: RunConfig, parts: dict[str, tuple[str, ...]]) -> None:
    for part, names in parts.items():
        prefix = "" if part in ("env", "schedule") else f"{part}."
        for name in names:
            value = getattr(getattr(config, part), name)
            if not 0 < value < math.inf:
                flag = prefix + name.replace("_", "-")
                raise UserError(f"--{flag} must be above 0 and finite, not {value}")


def check(config: RunConfig) -> None:
    """Refuse values that cannot work, naming the flag and what it takes."""
    _refuse_unless_positive(config, _POSITIVE)
    if config.method in AGENTS:
        _check_agent(config)
    else:
        _check_sac(config)
    if config.seed < 0:
        raise UserError(f"--seed must not be negative, not {config.seed}")
    if not 0 <= config.threads <= MOST_THREADS:
        raise UserError(f"--threads must be 0 (all cores) to {MOST_THREADS}, not {config.threads}")
    length = sampling(config).length
    if config.schedule.initial_steps < length:
        raise UserError(f"--initial-steps must be at least {length}: one sampled sequence")
    least = length + config.env.stack + 1
    if config.schedule.replay_capacity < least:
        raise UserError(f"--replay-capacity must be at least {least}")


def _check_sac(config: RunConfig) -> None:
    _refuse_unless_positive(config, _POSITIVE_IN_SAC)
    if min(config.encoder.strides, default=0) < 1:
        raise UserError(
            f"--encoder.strides takes numbers of 1 or more, not {config.encoder.strides}"
        )
    if config.encoder.fusion not in ("early", "late"):
        raise UserError(f"--encoder.fusion must be early or late, not {config.encoder.fusion!r}")
    fractions = {
        "encoder.tau": config.encoder.tau,
        "sac.tau": config.sac.tau,
        "sac.discount": config.sac.discount,
    }
    for flag, value in fractions.items():
        if not 0 < value <= 1:
            raise UserError(f"--{flag} must be above 0 and at most 1, not {value}")
    if not 0 <= config.encoder.method_share < math.inf:
        raise UserError(
            "--encoder.method-share must be 0 or more and finite, "
            f"not {config.encoder.method_share}"
        )
    if config.sac.transitions not in ("first", "all"):
        raise UserError(f"--sac.transitions must be first or all, not {config.sac.transitions!r}")
    if config.sac.batch < 2:
        raise UserError(f"--sac.batch must be at least 2, not {config.sac.batch}")
    if config.sac.shift < 0:
        raise UserError(f"--sac.shift must not be negative, not {config.sac.shift}")


def _check_agent(config: RunConfig) -> None:
    """An agent of its own has no use for SAC's settings: refuse them rather than ignore them."""
    for name, unused in (("sac", SACConfig()), ("encoder", EncoderConfig())):
        if getattr(config, name) != unused:
            raise UserError(
                f"{config.method} is an agent of its own: --{name}.* does not apply to it; "
                f"see --{config.method}.* in sibe train --method {config.method} --help"
            )
    if config.env.stack != 1:
        raise UserError(f"{config.method} remembers by itself and sees single frames: --stack 1")
