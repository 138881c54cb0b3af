"""The environments of a run that trains in environments made in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import gymnasium as gym

from sibe.envs.own_env import (
    AnyEnv,
    EnvFactory,
    KeepOpen,
    call_factory,
    factory_of_spec,
    own_name,
)
from sibe.envs.seeding import stream_seed
from sibe.errors import UserError


class OwnEnvs(NamedTuple):
    """What a run trains and is evaluated in, in place of its config's task."""

    name: str
    """stands for them in the config"""
    training: AnyEnv
    evaluation: Callable[[int], AnyEnv]
    """returns the evaluation environment of a number from 0"""
    most: int
    """evaluation environments that there can be at once"""


def own_envs(
    source: AnyEnv | EnvFactory, evaluation: AnyEnv | EnvFactory | None, seed: int
) -> OwnEnvs:
    """Return the environments of a run.

    Args:
        source: what is trained in: an object, or a factory of such objects.
        evaluation: what is evaluated in; None for the factory again, or what ``gym.make`` makes of
            an object's spec.
        seed: of the run; factories that take a seed are given others made from it.
    """
    if isinstance(source, gym.Env):
        training: AnyEnv = KeepOpen(source)
        evaluation = factory_of_spec(source) if evaluation is None else evaluation
    else:
        training = call_factory(source, stream_seed(seed, "training env"))
        evaluation = source if evaluation is None else evaluation
    name = own_name(training)
    if evaluation is None:
        raise UserError(
            f"{name} was not made by gym.make, and evaluation needs another one like it: give a "
            "factory, as in sibe.train(lambda: MyEnv()), or eval_env="
        )
    if evaluation is source and isinstance(source, gym.Env):
        raise UserError("eval_env must be another object: evaluation interrupts training episodes")
    if isinstance(evaluation, gym.Env):
        only = KeepOpen(evaluation)
        return OwnEnvs(name, training, lambda _: only, most=1)
    return OwnEnvs(name, training, _new_ones(evaluation, training, seed), most=sys.maxsize)


def _new_ones(factory: EnvFactory, training: AnyEnv, seed: int) -> Callable[[int], AnyEnv]:
    made = [training]

    def make(number: int) -> AnyEnv:
        env = call_factory(factory, stream_seed(seed, "evaluation env", number))
        if any(env.unwrapped is other.unwrapped for other in made):
            raise UserError("the factory returned one environment twice: it must make new ones")
        made.append(env)
        return env

    return make
