"""A policy's weights as a safetensors file: tensors and a few words, nothing that can run code.

An export holds what acting and embedding need (no critics, targets or optimizers), each tensor
bit for bit under the name ``network/parameter``. safetensors has no checksums, so the words hold
one of all tensors and of themselves, and the hash of the config that belongs to them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from sibe.agents.modules import broken_network
from sibe.errors import UserError
from sibe.storage.atomic import write_atomic
from sibe.storage.contained_file import open_file
from sibe.storage.run_files import EXPORTED_WEIGHTS

FORMAT = "sibe-policy-1"
WEIGHTS = EXPORTED_WEIGHTS
_ABOUT = "sibe"
_MOST_ACTIONS = 10_000
_MOST_NUMBERS = 1_000_000  # of the sensor state

AgentState = dict[str, dict[str, Tensor]]


def is_export(path: Path) -> bool:
    """Tell whether ``path`` looks like an export."""
    return (path / WEIGHTS).is_file()


class Exported(NamedTuple):
    """What a weights file holds."""

    env_step: int
    action_dim: int
    state: AgentState
    state_size: int = 0
    """numbers of the sensor ``state``"""
    config: str = ""
    """``digest`` of the config.json that it was written with; "" by an older version"""


def write_weights(
    path: Path,
    networks: Mapping[str, nn.Module],
    env_step: int,
    action_dim: int,
    state_size: int = 0,
    config: str = "",
) -> None:
    """Write the networks' tensors, bit for bit, under the names ``network/parameter``."""
    tensors = {
        f"{name}/{key}": value.detach().cpu().contiguous()
        for name, network in networks.items()
        for key, value in network.state_dict().items()
    }
    about: dict[str, Any] = {"format": FORMAT, "env_step": env_step, "action_dim": action_dim}
    if state_size:
        about["state_size"] = state_size
    if config:
        about["config"] = config
    about["sha256"] = _checksum(about, tensors)
    # One word of metadata: several would be written in an order that changes from time to time.
    metadata = {_ABOUT: json.dumps(about)}
    write_atomic(path, safetensors.torch.save(tensors, metadata))


def _checksum(about: dict[str, Any], tensors: Mapping[str, Tensor]) -> str:
    words = {name: value for name, value in about.items() if name != "sha256"}
    whole = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        whole.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return whole.hexdigest()


def read_weights(path: Path, device: torch.device) -> Exported:
    """Return what ``write_weights`` wrote."""
    try:
        open_file(path, within=path.parent).close()
        with safetensors.safe_open(path, framework="pt", device=str(device)) as file:
            about = json.loads((file.metadata() or {}).get(_ABOUT, "{}"))
            found = about.get("format", "none") if isinstance(about, dict) else "none"
            if found != FORMAT:
                raise UserError(f"{path} has the format {found}, this sibe reads {FORMAT}")
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
        state: AgentState = {}
        for name, tensor in tensors.items():
            network, _, key = name.partition("/")
            state.setdefault(network, {})[key] = tensor
        env_step, action_dim = about["env_step"], about["action_dim"]
        state_size, config = about.get("state_size", 0), about.get("config", "")
        if any(type(number) is not int for number in (env_step, action_dim, state_size)):
            raise ValueError("its counts are not whole numbers")
        if env_step < 0 or not 1 <= action_dim <= _MOST_ACTIONS:
            raise ValueError(f"{action_dim} actions after {env_step} env steps cannot be")
        if not 0 <= state_size <= _MOST_NUMBERS:
            raise ValueError(f"a state of {state_size} numbers cannot be")
        if not isinstance(config, str):
            raise ValueError("the hash of its config is no text")
        # An older version wrote none.
        if "sha256" in about and about["sha256"] != _checksum(about, tensors):
            raise ValueError("its checksum is wrong")
        return Exported(env_step, action_dim, state, state_size, config)
    except (
        safetensors.SafetensorError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise UserError(f"{path} is damaged ({error}): get another copy of it") from error


def load_networks(networks: Mapping[str, nn.Module], state: AgentState, path: Path) -> None:
    """Give the networks of an agent the tensors of an export."""
    try:
        for name, network in networks.items():
            # A method without networks leaves nothing in the file.
            network.load_state_dict(state.get(name, {}))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: {WEIGHTS} does not fit its config.json ({reason})") from error
    if (broken := broken_network(networks)) is not None:
        raise UserError(f"{path}: the weights of the {broken} are not finite: get another copy")
