"""`sibe doctor`: what is wrong with this machine, and the line that fixes it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sibe.errors import UserError


@dataclass(frozen=True)
class Doctor:
    """Check this machine: each line is ok, or the command that fixes it."""

    preset: str = "cpu"
    """Preset whose replay must fit: paper, cpu or debug."""

    def run(self) -> int:
        """Print the checks; 0 if all is well, else 1."""
        return examine(self.preset)


class Trouble(Exception):
    """A check that failed; the message is the command that fixes it."""


def check_python() -> str:
    """Python is new enough."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - pip can be told to install anyway
        raise Trouble(f"Python {version} is too old: make PYTHON=python3.11 setup")
    return f"Python {version}"


def check_versions() -> str:
    """mujoco and dm_control fit each other."""
    from sibe.envs.rendering import gl

    gl.check_versions()
    names = ("mujoco", "dm_control", "gymnasium")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def check_rendering() -> str:
    """One frame renders, and the robot is on it."""
    from sibe.envs.dmc import DMCPixels
    from sibe.envs.rendering.view import ViewConfig

    env = DMCPixels("cartpole_swingup", ViewConfig())
    try:
        frame, _ = env.reset(seed=0)
    finally:
        env.close()
    if len({*map(tuple, frame.reshape(-1, 3).tolist())}) < 10:
        raise Trouble("the frame is empty; another backend may help: export MUJOCO_GL=osmesa")
    return f"rendered one frame with MUJOCO_GL={os.environ['MUJOCO_GL']}"


def check_torch() -> str:
    """Torch computes, on what, and with how many threads `sibe train` would use it."""
    import torch

    from sibe.training.threads import busy_note, choose_threads

    torch.ones(2, 2) @ torch.ones(2, 2)
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU only"
    threads = choose_threads()
    busy = busy_note()
    return f"torch {torch.__version__}, {device}, {threads}" + (f"; {busy}" if busy else "")


def check_kernels() -> str:
    """What is compiled for this processor; nothing depends on it but speed."""
    from sibe.kernels import library
    from sibe.kernels.use import in_use

    found = library.find()
    if found.library is None:
        return f"none, so learning on the CPU takes longer ({' '.join(found.reason.split())})"
    names = in_use(autocast=True)
    use = "convolutions and sampling" if names else "sampling"
    half = (
        "; convolutions in bfloat16 with --encoder.autocast" if "half_convolutions" in names else ""
    )
    return f"{found.reason}, for {use}{half}"


def check_memory(preset: str) -> str:
    """The replay of the preset and learning fit into memory, a run onto the disk."""
    import psutil

    from sibe.catalogue.presets import preset_config
    from sibe.logs.amounts import size
    from sibe.training import resources
    from sibe.training.run import choose_device

    config = replace(preset_config(preset), device=str(choose_device("auto")))
    try:
        resources.check_ram(config)
    except UserError as error:
        raise Trouble(f"{error}, or --preset cpu") from error
    ram, learning = resources.replay_ram_bytes(config), resources.learning_ram_bytes(config)
    disk, room = resources.replay_disk_bytes(config), shutil.disk_usage(Path.cwd()).free
    if disk > room:
        raise Trouble(
            f"a run needs {size(disk)} of disk, {size(room)} are free: "
            "use --preset cpu or a smaller --replay-capacity"
        )
    free = psutil.virtual_memory().available
    return (
        f"preset {preset}: replay {size(ram)} and learning {size(learning)} of {size(free)} RAM, "
        f"{size(disk)} of {size(room)} disk"
    )


def check_video() -> str:
    """Videos can be decoded and written."""
    try:
        import av
    except ImportError as error:
        raise Trouble("PyAV is not installed: pip install 'sibe[video]'") from error
    from sibe.logs.video import write_mp4

    frame = np.full((32, 32, 3), 200, np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.mp4"
        write_mp4(path, [frame, frame], fps=25)
        with av.open(str(path)) as container:
            decoded = [picture.to_ndarray(format="rgb24") for picture in container.decode(video=0)]
    if len(decoded) != 2 or abs(float(decoded[0].mean()) - 200) > 10:
        raise Trouble("a video came back wrong: pip install --force-reinstall av")
    return f"PyAV {av.__version__} wrote and read a video"


def examine(preset: str) -> int:
    """Run every check and print a line for each; return 0 if all passed, else 1."""
    from sibe.catalogue.presets import preset_config

    preset_config(preset)  # an unknown preset is the user's error, not the machine's
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", check_python),
        ("versions", check_versions),
        ("rendering", check_rendering),
        ("torch", check_torch),
        ("kernels", check_kernels),
        ("memory", lambda: check_memory(preset)),
        ("video", check_video),
    ]
    failed = 0
    for name, check in checks:
        try:
            print(f"ok    {name:10s} {check()}")
        except Exception as trouble:  # a check that breaks has found something, too
            failed += 1
            kind = "" if isinstance(trouble, Trouble | UserError) else f"{type(trouble).__name__}: "
            print(f"FAIL  {name:10s} {kind}{' '.join(str(trouble).split())}")
    return 1 if failed else 0
