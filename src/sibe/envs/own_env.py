"""Environments made in Python: objects and factories where others have a task's name.

A config cannot hold an object. It holds the object's name behind ``own/``, so that a run tells
what it was trained in, and whoever wants that environment again has to bring it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from sibe.errors import UserError

AnyEnv = gym.Env[Any, Any]
EnvFactory = Callable[..., AnyEnv]
"""Returns a new environment; if it has a parameter ``seed``, it is given one."""
_PREFIX = "own/"


def own_name(env: AnyEnv) -> str:
    """Return the name that stands for an environment in a config."""
    return _PREFIX + (type(env.unwrapped).__name__ if env.spec is None else env.spec.id)


def is_own_name(task: str) -> bool:
    """Tell whether ``task`` stands for an environment made in Python."""
    return task.startswith(_PREFIX)


def refuse_own_name(task: str) -> None:
    """Refuse the name of an environment that must be given as an object."""
    if is_own_name(task):
        raise UserError(
            f"{task} was made in Python and a config holds only its name: give the environment, "
            "as in sibe.train(env, resume=RUN) or policy.make_env(env)"
        )


def call_factory(factory: EnvFactory, seed: int) -> AnyEnv:
    """Return a new environment of a factory."""
    try:
        takes_seed = "seed" in inspect.signature(factory).parameters
    except ValueError:  # a builtin has no signature
        takes_seed = False
    env = factory(seed=seed) if takes_seed else factory()
    if not isinstance(env, gym.Env):
        raise UserError(f"the factory returned {env!r}: it must return a gymnasium.Env")
    return env


def factory_of_spec(env: AnyEnv) -> EnvFactory | None:
    """Return a factory of environments like ``env``, or None if ``gym.make`` did not make it."""
    spec = env.spec
    if spec is None:
        return None

    def make() -> AnyEnv:
        try:
            return gym.make(spec)
        except Exception as error:  # a wrapper may not say what it was made with
            reason = " ".join(str(error).split())
            raise UserError(
                f"{spec.id} cannot be made a second time, for evaluation ({reason}): "
                "give a factory, or eval_env="
            ) from error

    return make


class KeepOpen(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that belongs to the caller: closing what is built on it leaves it open."""

    def close(self) -> None:
        """No-op."""
