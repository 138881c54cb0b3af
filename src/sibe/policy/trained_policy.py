"""A trained policy: what to do in a state, and the environment it knows."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch

from sibe.agents.protocol import Agent, MemorylessPolicy
from sibe.config.schema import EnvConfig, RunConfig
from sibe.envs.sensors import Observation
from sibe.errors import UserError, nearest
from sibe.policy.observations import Shapes, check_observation, check_readings, state_shapes
from sibe.training.environment import make_configured_env
from sibe.training.seeding import torch_stream


class TrainedPolicy:
    """A trained policy; takes one state or a batch of them, each of an episode of its own.

    Call ``reset`` when episodes begin: an agent with a recurrent model remembers them.

    Attributes:
        config: the run it came from.
        agent: the whole agent, for those who want more than actions.
        env_step: how long it was trained.
    """

    def __init__(self, config: RunConfig, agent: Agent, env_step: int) -> None:
        self.config, self.agent, self.env_step = config, agent, env_step
        self._policy = agent.policy()
        self._generator = torch_stream(config.seed, "policy")
        self._shapes = state_shapes(config.env, agent.state_size)

    def __repr__(self) -> str:
        env = self.config.env
        return (
            f"TrainedPolicy({self.config.method} on {env.task} ({env.background}), "
            f"env_step {self.env_step}, {_words(self._shapes)} -> "
            f"float32 [{self.agent.action_dim}], {self.agent.device})"
        )

    def reset(self) -> None:
        """Begin new episodes: an agent with a memory forgets the last ones."""
        self._policy.reset()

    def act(self, obs: Observation, *, explore: bool = False) -> npt.NDArray[np.float32]:
        """Return the action for a state uint8 [H, W, C], or actions for a batch [N, H, W, C].

        The mean action, or with ``explore`` what the agent would do while it collects. A policy
        of several sensors takes a dict of their readings; leave out a sensor that gave none.

        Raises:
            ObservationError: a ``ValueError``, if ``obs`` is not what the policy was trained on.
        """
        generator = self._generator if explore else None
        if isinstance(self._shapes, dict):
            return self._act_by_sensor(obs, self._shapes, generator)
        check_observation(obs, self._shapes)
        single = obs.ndim == 3
        actions = self._policy.act(np.ascontiguousarray(obs[None] if single else obs), generator)
        return actions[0] if single else actions

    def _act_by_sensor(
        self,
        obs: Observation,
        shapes: dict[str, tuple[int, ...]],
        generator: torch.Generator | None,
    ) -> npt.NDArray[np.float32]:
        check_readings(obs, shapes)
        name, first = next(iter(obs.items()))
        single = first.ndim == len(shapes[name])
        readings = {n: np.ascontiguousarray(r[None] if single else r) for n, r in obs.items()}
        rows = len(readings[name])
        missing = np.tile([n not in readings for n in shapes], (rows, 1))
        for absent in shapes.keys() - readings.keys():
            kind = np.uint8 if len(shapes[absent]) == 3 else np.float32
            readings[absent] = np.zeros((rows, *shapes[absent]), kind)
        actions = self._policy.act(readings, generator, None, missing if missing.any() else None)
        return actions[0] if single else actions

    def predict(
        self,
        obs: Observation,
        state: None = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        deterministic: bool = True,
    ) -> tuple[npt.NDArray[np.float32], None]:
        """Return the action and None, as a model of Stable-Baselines3 does.

        So its ``evaluate_policy`` takes this policy as it is.

        Args:
            obs: a state or a batch, as for ``act``.
            state: not used; an agent with a memory keeps it until ``reset``.
            episode_start: which episodes of the batch begin with this state; ``reset`` is then
                not needed.
            deterministic: the mean action; False for what the agent does while it collects.
        """
        if episode_start is not None and np.any(episode_start):
            if not np.all(episode_start) and not isinstance(self._policy, MemorylessPolicy):
                raise UserError(
                    f"{self.config.method} remembers its episodes, which must begin together: "
                    "use one environment at a time"
                )
            self.reset()
        return self.act(obs, explore=not deterministic), None

    def make_env(
        self, task: str | gym.Env[Any, Any] | None = None, *, split: str = "eval", **changes: Any
    ) -> gym.Env[Any, npt.NDArray[np.float32]]:
        """Return the environment that the policy was trained in, or one changed in some respect.

        Args:
            task: another task by name, or an environment of your own.
            split: "eval", or "train" for the seeds and clips of training.
            changes: fields of ``EnvConfig``, such as ``background="video"``.
        """
        own = task if isinstance(task, gym.Env) else None
        if isinstance(task, str):
            changes = {**changes, "task": task}
        names = [field.name for field in fields(EnvConfig)]
        if unknown := sorted(set(changes) - set(names)):
            raise UserError(f"unknown setting {unknown[0]!r}{nearest(unknown[0], names)}")
        return make_configured_env(replace(self.config.env, **changes), split=split, own=own)


def _words(shapes: Shapes) -> str:
    if not isinstance(shapes, dict):
        return f"uint8 {list(shapes)}"
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
