"""``load_policy``: a trained agent from its run directory or an export, in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sibe.catalogue.build import build_agent
from sibe.catalogue.run_config import check, read_run_config
from sibe.errors import UserError
from sibe.policy.hub import download, hub_name
from sibe.policy.trained_policy import TrainedPolicy
from sibe.policy.weights import WEIGHTS, is_export, load_networks, read_weights
from sibe.storage import checkpoint
from sibe.storage.run_files import RunFiles
from sibe.training.run import choose_device
from sibe.training.seeding import torch_stream


def load_policy(run: str | Path, *, device: str = "auto") -> TrainedPolicy:
    """Load the newest checkpoint of a run directory, or what `sibe export` made of it.

    "hf://user/name", or "hf://user/name@revision", is an export on the Hugging Face Hub.

    Examples:
        >>> policy = sibe.load_policy("runs/cartpole_swingup-noise/sibe/seed1")
        >>> policy.reset()
        >>> action = policy.act(obs)
    """
    name = hub_name(run)
    path = Path(run) if name is None else download(name)
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
