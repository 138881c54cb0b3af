"""A run directory: the only thing that passes between training and what comes after it.

Whoever writes in it holds its lock, so two processes never share one; the operating system frees
the lock however the holder ends. ``config.json`` is written first and makes a folder a run: the
same config comes back to it, another is refused, and a folder of anything else is left alone.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from sibe.errors import InUseError, UserError
from sibe.storage.atomic import SUFFIX, remove_temporary, write_atomic

LOCK = ".lock"
_PACKAGES = ("sibe", "torch", "mujoco", "dm_control", "gymnasium", "numpy")


class RunDirectory:
    """An open, locked run directory; ``config`` is what its config.json holds."""

    def __init__(self, path: Path) -> None:
        """Take the lock of the existing folder ``path``; use the two class methods instead."""
        self.path = path
        self.config: dict[str, Any] = {}
        self.checkpoints = path / "checkpoint"
        self.replay = path / "replay"
        self.videos = path / "video"
        self.tensorboard = path / "tensorboard"
        self.train_csv = path / "train.csv"
        self.eval_csv = path / "eval.csv"
        self.eval_episodes_csv = path / "eval_episodes.csv"
        self._lock = _take_lock(path)

    @classmethod
    def create_or_open(
        cls, path: Path, config_json: dict[str, Any], meta: dict[str, Any]
    ) -> RunDirectory:
        """Start the run ``config_json`` in ``path``, or come back to it.

        Raises:
            UserError: if ``path`` is in use, holds another run or something else, or cannot be
                written.
        """
        config = json.loads(json.dumps(config_json))  # as it will be read: lists, not tuples
        with _as_user_error(path):
            path.mkdir(parents=True, exist_ok=True)
            _refuse_foreign(path)  # before the lock, which would leave a file there
            run = cls(path)
            with run._closed_on_error():
                there = cls.read_config(path) if (path / "config.json").exists() else {}
                # A start that was refused leaves its config, which must not bind the next one.
                free = not _has_begun(path) and there.keys() == config.keys()
                if there and not free:
                    _refuse_other(path, _completed(there), config)
                run._settle(config, meta, replace=free)
        return run

    @classmethod
    def open_existing(cls, path: Path) -> RunDirectory:
        """Come back to the run in ``path``, whatever its config is.

        Raises:
            UserError: if there is no run, or it is in use or cannot be written.
        """
        cls.read_config(path)
        with _as_user_error(path):
            run = cls(path)
            with run._closed_on_error():
                run._settle(cls.read_config(path), None)
        return run

    @staticmethod
    def read_config(path: Path) -> dict[str, Any]:
        """Return the config of the run in ``path``; this takes no lock and writes nothing."""
        file = path / "config.json"
        if not path.is_dir():
            raise UserError(f"there is no run directory {path}: check the path")
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{path} is not a run directory: it has no config.json") from None
        except OSError as error:
            raise UserError(f"cannot read {file}: {error.strerror}") from error
        except ValueError as error:
            raise UserError(f"{file} is damaged ({error}): put back a copy of it") from error
        if not isinstance(config, dict):
            raise UserError(f"{file} is damaged (not a JSON object): put back a copy of it")
        return config

    def read_meta(self) -> dict[str, Any]:
        """Return what ``collect_meta`` said when the run began; nothing if that is lost."""
        try:
            meta = json.loads((self.path / "meta.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return meta if isinstance(meta, dict) else {}

    def close(self) -> None:
        """Free the lock."""
        # Closing, not unlocking: a forked child that gets here must not free its parent's lock.
        self._lock.close()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _settle(
        self, config: dict[str, Any], meta: dict[str, Any] | None, *, replace: bool = False
    ) -> None:
        """Bring the folder into the state that every process of the run starts from."""
        self.config = config
        remove_temporary(self.path)
        for name, values in (("config.json", config), ("meta.json", meta)):
            if values is not None and (replace or not (self.path / name).exists()):
                write_atomic(self.path / name, (json.dumps(values, indent=1) + "\n").encode())
        for folder in (self.checkpoints, self.replay, self.videos, self.tensorboard):
            folder.mkdir(exist_ok=True)
            remove_temporary(folder)

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config with the defaults of the fields that came after it was written."""
    from sibe.catalogue.run_config import from_json, to_json

    try:
        return to_json(from_json(config))
    except UserError:  # not of this version: the comparison will say what differs
        return config


def collect_meta() -> dict[str, Any]:
    """Return what a result depends on beside its config: versions, machine, revision, command."""
    import torch

    from sibe.kernels import convolution

    cuda = torch.cuda.is_available()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        # The program's name alone: where it is installed is nobody's business.
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "git": git_revision(Path(__file__).parents[1]),
        "versions": {"python": platform.python_version(), **{n: _version(n) for n in _PACKAGES}},
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "kernels": convolution.available(),  # sums in another order than PyTorch's
        "device": f"cuda ({torch.cuda.get_device_name()})" if cuda else "cpu",
        "MUJOCO_GL": os.environ.get("MUJOCO_GL"),
    }


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


def _take_lock(path: Path) -> IO[str]:
    lock = (path / LOCK).open("a+", encoding="ascii", errors="replace")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise InUseError(
            f"{path} is in use by another process (pid {holder}): "
            "wait for it, or choose another --out"
        ) from None
    except BaseException:
        lock.close()
        raise
    return lock


def _refuse_foreign(path: Path) -> None:
    names = {entry.name for entry in path.iterdir()}
    # A run killed before its config.json was in place leaves these two.
    others = sorted(name for name in names if name != LOCK and not name.endswith(SUFFIX))
    if others and "config.json" not in names:
        raise UserError(
            f"{path} is not empty and not a run directory (it has {others[0]} but no config.json): "
            "choose another --out"
        )


def _has_begun(path: Path) -> bool:
    """Return whether there is anything of the run to lose: a checkpoint or a row of a log."""
    rows = path / "train.csv"
    lines = rows.read_bytes().count(b"\n") if rows.exists() else 0
    return lines > 1 or any((path / "checkpoint").glob("*")) or any((path / "replay").glob("*"))


def _refuse_other(path: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    difference = first_difference(there, here)
    if difference is not None:
        name, old, new = difference
        raise UserError(
            f"{path} holds another run: {name} is {old} there and {new} here; choose another --out"
        )


def first_difference(there: Any, here: Any, name: str = "") -> tuple[str, str, str] | None:
    """Return the first field in which two configs differ and both its values, or None."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in (*here, *(key for key in there if key not in here)):
            below = f"{name}.{key}" if name else key
            found = first_difference(there.get(key, "unset"), here.get(key, "unset"), below)
            if found is not None:
                return found
        return None
    return None if there == here else (name, json.dumps(there), json.dumps(here))


@contextmanager
def _as_user_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot use {path} ({reason}): choose another --out") from error
