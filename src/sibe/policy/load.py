"""``load_policy``: a trained agent from its run directory or an export, in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sibe.agents.modules import broken_network
from sibe.agents.protocol import Agent
from sibe.catalogue.build import build_agent
from sibe.catalogue.run_config import check, read_run_config
from sibe.config.schema import RunConfig
from sibe.envs.sensors import PIXELS, STATE, Sensors
from sibe.envs.tasks import refuse_import
from sibe.errors import UserError, printable
from sibe.policy.allocation_limit import AllocationLimit
from sibe.policy.hub import download, hub_name
from sibe.policy.trained_policy import TrainedPolicy
from sibe.policy.weights import WEIGHTS, is_export, load_networks, read_weights
from sibe.storage import checkpoint
from sibe.storage.json_file import digest
from sibe.storage.run_files import CONFIG_JSON, RunFiles
from sibe.training.checkpoint_state import changed_field
from sibe.training.run import choose_device
from sibe.training.seeding import torch_stream

_ROOM, _TIMES = 1 << 24, 16
"""An agent takes at most so many bytes, and so many times the bytes of what it is loaded from."""


def load_policy(
    run: str | Path, *, device: str = "auto", allow_import: bool = False
) -> TrainedPolicy:
    """Load the newest checkpoint of a run directory, or what `sibe export` made of it.

    "hf://user/name", or "hf://user/name@revision", is an export on the Hugging Face Hub.

    Args:
        run: the folder.
        device: where its networks go.
        allow_import: whether its task may name a module to import ("module:Name-v0").

    Examples:
        >>> policy = sibe.load_policy("runs/cartpole_swingup-noise/sibe/seed1")
        >>> policy.reset()
        >>> action = policy.act(obs)
    """
    name = hub_name(run)
    path = Path(run) if name is None else download(name)
    config = read_run_config(path)
    check(config)
    refuse_import(config.env.task, allowed=allow_import)
    where = choose_device(device)
    load = _from_export if is_export(path) else _from_run
    return load(path, config, where)


def _from_export(path: Path, config: RunConfig, device: torch.device) -> TrainedPolicy:
    exported = read_weights(path / WEIGHTS, device)
    size = sum(t.nbytes for network in exported.state.values() for t in network.values())
    if bool(exported.state_size) != config.env.seen.state:
        raise _other_sensors(path, config.env.seen)
    agent = _build(config, exported.action_dim, device, size, exported.state_size)
    load_networks(agent.policy_networks(), exported.state, path)
    if exported.config and exported.config != digest(RunFiles(path).read_config()):
        print(printable(f"note: {path / CONFIG_JSON} was changed after the export"))
    return TrainedPolicy(config, agent, exported.env_step)


def _from_run(path: Path, config: RunConfig, device: torch.device) -> TrainedPolicy:
    loaded: list[TrainedPolicy] = []

    def use(env_step: int, state: dict[str, Any]) -> None:
        try:
            layout, own = state["replay"]["layout"], state["agent"]
            shapes = layout[1] if isinstance(layout[1], dict) else {PIXELS: layout[1:-1]}
            if set(shapes) != set(config.env.seen.names):
                raise _other_sensors(path, config.env.seen)
            state_size = shapes.get(STATE, [0])[0]
            agent = _build(config, layout[-1], device, _nbytes(own), state_size)
            agent.load_state_dict(own)
            if (name := broken_network(agent.networks())) is not None:
                raise ValueError(f"the weights of the {name} are not finite")
            change = changed_field(state["config"], config) if "config" in state else None
        except (OSError, MemoryError, UserError):
            raise
        except Exception as error:  # whatever an odd state leads to
            raise checkpoint.Damaged(repr(error).partition("\n")[0][:200]) from error
        if change is not None:
            name, old, new = change
            print(printable(f"note: {path / CONFIG_JSON} was changed: {name} is {new}, was {old}"))
        loaded.append(TrainedPolicy(config, agent, env_step))

    folder = RunFiles(path).checkpoints
    if checkpoint.load_newest(folder, map_location=device, report=print, use=use) is None:
        raise UserError(f"{path} has no checkpoint yet: train it further with --resume {path}")
    return loaded[-1]


def _build(
    config: RunConfig, action_dim: int, device: torch.device, size: int, state_size: int
) -> Agent:
    """Build the agent, but none that is much larger than the ``size`` bytes of its weights."""
    with AllocationLimit(_ROOM + _TIMES * size):
        generator = torch_stream(config.seed, "agent")
        return build_agent(config, action_dim, generator, device, state_size)


def _other_sensors(path: Path, sensors: Sensors) -> UserError:
    return UserError(
        f"{path} was trained with other sensors than its config.json says "
        f"({', '.join(sensors.names)}): put its own config.json back"
    )


def _nbytes(value: Any) -> int:
    """Return the bytes of the tensors in nested dicts."""
    if isinstance(value, dict):
        return sum(map(_nbytes, value.values()))
    return value.nbytes if isinstance(value, torch.Tensor) else 0
