"""What a result depends on beside its config: versions, machine, git revision, command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from sibe.kernels.use import in_use

_PACKAGES = ("sibe", "torch", "mujoco", "dm_control", "gymnasium", "numpy")


def collect_meta(*, autocast: bool = False) -> dict[str, Any]:
    """Return the contents of meta.json of a run, with or without ``--encoder.autocast``."""
    cuda = torch.cuda.is_available()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        # The program's name alone: where it is installed is private.
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "git": git_revision(Path(__file__).parents[1]),
        "versions": package_versions(),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "kernels": in_use(autocast=autocast),  # sums in another order than PyTorch's
        "device": f"cuda ({torch.cuda.get_device_name()})" if cuda else "cpu",
        "MUJOCO_GL": os.environ.get("MUJOCO_GL"),
    }


def package_versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages that a result depends on."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def git_revision(package: Path) -> dict[str, Any] | None:
    """Return the commit of the folder ``package`` and whether it was changed since.

    None if git does not track the folder: a virtualenv often lies in somebody else's checkout.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env["GIT_OPTIONAL_LOCKS"] = "0"  # looking must not write the index

    def git(*args: str) -> str:
        command = ["git", "-C", str(package), *args]
        done = subprocess.run(command, env=env, capture_output=True, timeout=10, check=True)
        return done.stdout.decode(errors="replace").strip()

    try:
        if not git("ls-files", "."):
            return None
        return {
            "revision": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "--", ".")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
