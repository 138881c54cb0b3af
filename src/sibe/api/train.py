"""``sibe.train``: the command line's `sibe train` as a function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from sibe.api.overrides import with_overrides
from sibe.api.result import TrainingResult
from sibe.catalogue.presets import default_preset, preset_config
from sibe.catalogue.run_config import read_run_config
from sibe.config.schema import EnvConfig, RunConfig
from sibe.envs.own_env import EnvFactory
from sibe.envs.tasks import check_names, default_action_repeat
from sibe.errors import UserError
from sibe.training import run
from sibe.training.callbacks import Callback
from sibe.training.own_envs import OwnEnvs, own_envs

Env = gym.Env[Any, Any]


def train(
    task: str | Env | EnvFactory | None = None,
    background: str | None = None,
    *,
    preset: str | None = None,
    method: str | None = None,
    seed: int | None = None,
    config: RunConfig | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    eval_env: Env | EnvFactory | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    **overrides: Any,
) -> TrainingResult:
    """Train an agent, or continue a run that was interrupted, and return what came of it.

    The same call again continues the run in its directory, or returns at once if it is finished.

    Args:
        task: a DeepMind Control task or a Gymnasium id; or an environment, or a factory of
            environments ``() -> env`` or ``(seed) -> env``. Default: "cartpole_swingup".
        background: "clean" (default), "noise", "video" or "video_random".
        preset: "paper", "cpu" or "debug"; default: paper where there is a GPU, else cpu.
        method: what is added to SAC, or a standalone agent. Default: "sibe".
        seed: one seed gives one result. Default: 1.
        config: the whole run, in place of ``preset``, ``task`` by name, ``background`` and
            ``method``; see ``preset_config``.
        out: directory of the run. Default: ``runs/<task>-<background>/<method>/seed<k>``.
        resume: directory of a run to continue with the config it was started with. A run in an
            environment of your own needs ``task`` (and ``eval_env``) again. With ``env_steps`` it
            is extended.
        eval_env: with a task of your own, what is evaluated in: an environment or a factory.
            Default: the factory again, or what ``gym.make`` makes of the environment's spec.
        callback: is told of what happens and may stop the run; or a list of callbacks.
        overrides: any other flag of `sibe train`: ``env_steps=3000`` for ``--env-steps 3000``,
            ``sac={"batch": 32}`` for ``--sac.batch 32``, ``sibe=SIBEConfig(alpha=0.01)``.

    Returns:
        The run's directory, evaluations, score and policy.

    Raises:
        UserError: in one line, what is wrong and how to fix it.

    Examples:
        >>> result = sibe.train("cartpole_swingup", "noise", preset="debug", seed=1)
        >>> result.score
        >>> result.policy.act(obs)
    """
    callbacks = _as_list(callback)
    name, source = (task, None) if task is None or isinstance(task, str) else (None, task)
    chosen = {"task": name, "background": background, "preset": preset, "method": method}
    if resume is not None:
        env_steps = overrides.pop("env_steps", None)
        given = {**chosen, "seed": seed, "config": config, "out": out, **overrides}
        _leave_out(given, "resume takes the run's own config")
        return _resume(Path(resume), env_steps, source, eval_env, callbacks)
    if config is not None:
        _leave_out(chosen, "config is a whole run")
        seed = config.seed if seed is None else seed
    seed = 1 if seed is None else seed
    own = _own(source, eval_env, seed)
    if config is None:
        config = preset_config(
            preset or default_preset(),
            task=own.name if own else name or "cartpole_swingup",
            method=method or "sibe",
            background=background or "clean",
        )
    config = with_overrides(config, {"seed": seed, **overrides})
    if own is None:
        check_names(config.env.task, config.env.background)
    else:
        config = replace(config, env=_for_own(config.env, own.name, overrides))
    path = run.train(config, None if out is None else Path(out), callbacks=callbacks, own=own)
    return TrainingResult(path)


def _for_own(env: EnvConfig, name: str, overrides: Mapping[str, Any]) -> EnvConfig:
    """Return the env's config for an own env; a preset's action repeat is that of its own task."""
    repeat = env.action_repeat
    if "action_repeat" not in overrides and repeat == default_action_repeat(env.task):
        repeat = default_action_repeat(name)
    return replace(env, task=name, action_repeat=repeat)


def _resume(
    path: Path,
    env_steps: int | None,
    source: Env | EnvFactory | None,
    eval_env: Env | EnvFactory | None,
    callbacks: Sequence[Callback],
) -> TrainingResult:
    before = read_run_config(path)
    own = _own(source, eval_env, before.seed)
    if own is not None and own.name != before.env.task:
        raise UserError(f"{path} was trained in {before.env.task}, not in {own.name}")
    run.resume(path, env_steps=env_steps, callbacks=callbacks, own=own)
    return TrainingResult(path)


def _own(
    source: Env | EnvFactory | None, eval_env: Env | EnvFactory | None, seed: int
) -> OwnEnvs | None:
    if source is None:
        if eval_env is not None:
            raise UserError("eval_env goes with an environment of your own as the task")
        return None
    if isinstance(source, RunConfig):
        raise UserError("a RunConfig is given by name: sibe.train(config=…)")
    for given in (source, eval_env):
        if not (given is None or callable(given) or isinstance(given, gym.Env)):
            raise UserError(f"an environment is a gymnasium.Env or a factory, not {given!r}")
    return own_envs(source, eval_env, seed)


def _leave_out(given: Mapping[str, Any], why: str) -> None:
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise UserError(f"{why}; leave out {', '.join(names)}")


def _as_list(callback: Callback | Sequence[Callback] | None) -> Sequence[Callback]:
    if callback is None:
        return []
    if isinstance(callback, Callback) or not isinstance(callback, Sequence):
        callback = [callback]
    for each in callback:
        if not isinstance(each, Callback):
            raise UserError(f"a callback is an object of a subclass of sibe.Callback, not {each!r}")
    return callback
