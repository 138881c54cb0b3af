"""What a run needs of RAM and disk, computed and refused before it starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil

from sibe.catalogue.registry import find_agent
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.envs.sensors import STATE
from sibe.errors import UserError
from sibe.logs.amounts import size
from sibe.replay.replay import Replay
from sibe.storage.run_directory import nearest_folder

_ACTIONS = 64  # more than any task has
_STATE = 400  # numbers; more than the suite's largest robot has
_CHECKPOINTS = 3  # two, and one being written
_COPIES = 4  # weights and moments; gradients of all; and two more while a checkpoint is written
_SMALLER = "use a smaller --replay-capacity or --size"


def replay_ram_bytes(config: RunConfig) -> int:
    """Return the bytes of RAM that the replay comes to: frames with their margin for the shift.

    It takes RAM as it fills, and a short run never fills it.
    """
    sensors, frame = config.env.seen, (config.env.size, config.env.size, 3)
    shapes = {STATE: (_STATE,)} if sensors.state else {}
    frames = min(config.schedule.replay_capacity, _most_collected(config))
    shift = sampling(config).shift
    needed = Replay.nbytes_for(
        frames, {**dict.fromkeys(sensors.views, frame), **shapes}, _ACTIONS, shift
    )
    return 2 * needed if config.encoder.foreground else needed  # as they are, and as they are seen


def learning_ram_bytes(config: RunConfig) -> int:
    """Return about the bytes of RAM that learning takes: the networks, and on a CPU the updates.

    A GPU has memory of its own, and says so when it is full.
    """
    agent = find_agent(config.method)
    updates = agent.update_bytes(config) if config.device == "cpu" else 0
    return _COPIES * agent.checkpoint_bytes(config) + updates


def replay_disk_bytes(config: RunConfig) -> int:
    """Return the bytes on disk of a full replay's episode files and of what is kept beside them.

    Files are deleted only when neither of two checkpoints needs them, so for a while there are
    more than the ring holds: by what is collected between two checkpoints.
    """
    collected = 2 * config.schedule.checkpoint_every // config.env.action_repeat + 1000
    frames = min(config.schedule.replay_capacity + collected, _most_collected(config))
    checkpoints = _CHECKPOINTS * find_agent(config.method).checkpoint_bytes(config)
    sensors = config.env.seen
    reading = len(sensors.views) * config.env.size**2 * 3 + sensors.state * _STATE * 4
    return frames * reading + checkpoints


def _most_collected(config: RunConfig) -> int:
    """Return the frames of the whole run: one per agent step, and the first of each episode."""
    return config.schedule.env_steps // config.env.action_repeat + 1000


def check_ram(config: RunConfig) -> None:
    """Refuse a run that cannot fit into memory."""
    replay, learning = replay_ram_bytes(config), learning_ram_bytes(config)
    free = psutil.virtual_memory().available
    if replay > free:
        raise UserError(
            f"the replay needs {size(replay)} of RAM and {size(free)} are free: {_SMALLER}"
        )
    if replay + learning > free:
        raise UserError(
            f"learning needs about {size(learning)} of RAM beside {size(replay)} of replay, and "
            f"{size(free)} are free: use a smaller batch, --size or width of the networks"
        )


def check_resources(config: RunConfig, path: Path) -> None:
    """Refuse a run that cannot fit into memory or onto the disk of ``path``."""
    check_ram(config)
    held = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    disk, room = replay_disk_bytes(config) - held, shutil.disk_usage(nearest_folder(path)).free
    if disk > room:
        raise UserError(
            f"the run needs {size(disk)} of disk and {path} has {size(room)} free: "
            f"{_SMALLER}, or --out on another disk"
        )
