"""The presets: ``paper`` (Appendix A), ``cpu`` (the same algorithm, small), ``debug`` (seconds).

A preset is a whole config; what the paper fixes per task (its Table 3) is filled in by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sibe.catalogue.registry import AGENTS, find_method
from sibe.config.schema import EncoderConfig, EnvConfig, RunConfig, SACConfig, ScheduleConfig
from sibe.envs.tasks import SUITE_TASKS
from sibe.errors import UserError, nearest

PRESETS = ("paper", "cpu", "debug")
CPU_SCHEDULE = ScheduleConfig(env_steps=100_000, initial_steps=500)
DEBUG_SCHEDULE = ScheduleConfig(
    env_steps=3000,
    initial_steps=50,
    replay_capacity=500,
    eval_every=1000,
    eval_episodes=2,
    checkpoint_every=1000,
)
_PAPER_BATCH = {"walker_walk": 128}


def preset_config(
    preset: str,
    *,
    task: str = "cartpole_swingup",
    method: str = "sibe",
    background: str = "clean",
) -> RunConfig:
    """Return the config of a preset for a task, a method and what is behind the robot."""
    if preset not in PRESETS:
        raise UserError(
            f"unknown preset {preset!r}{nearest(preset, PRESETS)} (there are {', '.join(PRESETS)})"
        )
    spec = SUITE_TASKS.get(task)
    config = RunConfig(
        method=method,
        preset=preset,
        env=EnvConfig(
            task=task, background=background, action_repeat=spec.action_repeat if spec else 2
        ),
        # Of a chunk, SAC learns from the first transition: without a method the rest is waste.
        sac=SACConfig(batch=_PAPER_BATCH.get(task, 256), chunk=1 if method == "none" else 2),
        method_config=_method_config(method),
    )
    if method in AGENTS:
        return AGENTS[method].preset(replace(config, sac=SACConfig()))  # type: ignore[no-any-return]
    if preset == "paper":
        return config
    return _cpu(config) if preset == "cpu" else _debug(config)


def _method_config(method: str, **changes: Any) -> Any:
    cls = find_method(method).config
    names = cls.__dataclass_fields__
    return cls(**{name: value for name, value in changes.items() if name in names})


def _cpu(config: RunConfig) -> RunConfig:
    """Small enough that two CPU cores show learning in minutes, for every background alike.

    The scene is drawn at 84×84 as in the paper and averaged to 42×42; frames are encoded one by one
    and combined late, which finds velocities in a fraction of the updates; TD targets sum three
    rewards; SAC learns from every transition of a chunk, actor and targets move at every update.
    With rewards scaled down, the losses of critic and method weigh about the same in their plain
    sum. docs/reproduction.md says how each of these was found.
    """
    return replace(
        config,
        env=replace(config.env, size=42, supersample=2),
        encoder=EncoderConfig(
            fusion="late", filters=16, strides=(2, 2, 1), lr=1e-3, center=True, smooth=True
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
            shift=2,
        ),
        schedule=CPU_SCHEDULE,
        method_config=_method_config(config.method, hidden=256, lr=1e-3, alpha=0.001),
    )


def _debug(config: RunConfig) -> RunConfig:
    """Every branch of the code in seconds; no claim to learn."""
    return replace(
        config,
        env=replace(config.env, size=32),
        encoder=EncoderConfig(features=16, filters=8, strides=(2, 1, 1, 1)),
        sac=SACConfig(hidden=32, batch=8, shift=2),
        schedule=DEBUG_SCHEDULE,
        method_config=_method_config(config.method, hidden=32, latent=16),
    )
