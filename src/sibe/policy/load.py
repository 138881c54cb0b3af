"""``load_policy``: a trained agent from its run directory or an export, in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sibe.agents.protocol import Agent
from sibe.catalogue.build import build_agent
from sibe.catalogue.run_config import check, read_run_config
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.policy.weights import WEIGHTS, is_export, load_networks, read_weights
from sibe.storage import checkpoint
from sibe.storage.run_files import RunFiles
from sibe.training.run import choose_device
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

    def reset(self) -> None:
        """Begin new episodes: an agent with a memory forgets the last ones."""
        self._policy.reset()

    def act(self, obs: npt.NDArray[np.uint8], *, explore: bool = False) -> npt.NDArray[np.float32]:
        """Return the action for a state uint8 [H, W, C], or actions for a batch [N, H, W, C].

        The mean action, or with ``explore`` what the agent would do while it collects.
        """
        single = obs.ndim == 3
        actions = self._policy.act(
            np.ascontiguousarray(obs[None] if single else obs),
            self._generator if explore else None,
        )
        return actions[0] if single else actions


def load_policy(run: str | Path, *, device: str = "auto") -> TrainedPolicy:
    """Load the newest checkpoint of a run directory, or what `sibe export` made of it.

    Example:
        >>> policy = sibe.load_policy("runs/cartpole_swingup-noise/sibe/seed1")
        >>> policy.reset()
        >>> action = policy.act(obs)
    """
    path = Path(run)
    config = read_run_config(path)
    check(config)
    where = choose_device(device)
    env_step, action_dim, state = read_state(path, where)
    agent = build_agent(config, action_dim, torch_stream(config.seed, "agent"), where)
    if is_export(path):
        load_networks(agent.policy_networks(), state, path)
    else:
        agent.load_state_dict(state)
    return TrainedPolicy(config, agent, env_step)


def read_state(path: Path, device: torch.device) -> tuple[int, int, dict[str, Any]]:
    """Return env step, A and the agent's state: whole from a run, of an export what it has."""
    if is_export(path):
        return read_weights(path / WEIGHTS, device)
    folder = RunFiles(path).checkpoints
    found = checkpoint.load_newest(folder, map_location=device, report=print)
    if found is None:
        raise UserError(f"{path} has no checkpoint yet: train it further with --resume {path}")
    env_step, state = found
    return env_step, state["replay"]["layout"][-1], state["agent"]
