"""A run directory: the only thing that passes between training and what comes after it.

Whoever writes in it holds its lock, so two processes never share one; the operating system frees
the lock however the holder ends. It is a lock on the folder itself, which cannot be deleted
unnoticed, and on the file ``.lock``, which names the holder. ``config.json`` is written first and
makes a folder a run: the same config comes back to it, another is refused, and a folder of anything
else is left alone. ``check`` refuses what can be refused without writing anything, for those who
build before.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sibe.errors import InUseError, UserError
from sibe.storage.atomic import (
    SUFFIX,
    make_folder,
    remove_temporary,
    sync_folder,
    write_atomic,
)
from sibe.storage.contained_file import contained, open_file, read_file
from sibe.storage.folder_lock import FolderLock
from sibe.storage.run_files import (
    CONFIG_JSON,
    EXPORTED_WEIGHTS,
    LOCK,
    META_JSON,
    TRAIN_CSV,
    RunFiles,
)

Values = dict[str, Any]
_LONGEST_PID = 64


def _as_it_is(config: Values) -> Values:
    return config


class RunDirectory(RunFiles):
    """An open, locked run directory; ``config`` is what its config.json holds."""

    def __init__(self, path: Path) -> None:
        """Take the lock of the existing folder ``path``; use ``create_or_open`` instead."""
        super().__init__(path)
        self.config: Values = {}
        self._locks = _take_lock(self)

    @classmethod
    def create_or_open(
        cls,
        path: Path,
        config_json: Values,
        meta: Values,
        *,
        comparable: Callable[[Values], Values] = _as_it_is,
    ) -> RunDirectory:
        """Start the run ``config_json`` in ``path``, or come back to it.

        Args:
            path: the folder, made if missing.
            config_json: the run.
            meta: what else the result depends on, for meta.json of a new run.
            comparable: takes a config, of an older version perhaps, and returns the values in
                which two configs of one run must agree.

        Raises:
            UserError: if ``path`` is in use, holds another run or something else, or cannot be
                written.
        """
        config = json.loads(json.dumps(config_json))  # as it will be read: lists, not tuples
        with _as_user_error(path):
            make_folder(path)
            refuse_foreign(path)  # before the lock, which would leave a file there
            run = cls(path)
            with _closed_on_error(run._locks):
                there, free = _refuse_other(run, config, comparable)
                if free and comparable(there) != comparable(config):
                    run.tracker_json.unlink(missing_ok=True)  # it names a run with that config
                run._settle(config, meta, replace=free)
        return run

    @staticmethod
    def check(
        path: Path, config_json: Values, *, comparable: Callable[[Values], Values] = _as_it_is
    ) -> None:
        """Refuse what ``create_or_open`` would refuse; nothing is written, no lock is kept."""
        config = json.loads(json.dumps(config_json))
        with _as_user_error(path):
            if not path.is_dir():
                _refuse_closed(nearest_folder(path))
                return
            refuse_foreign(path)
            run = RunFiles(path)
            _refuse_other(run, config, comparable)
            if run.lock.exists():
                _take_lock(run).close()

    def extend(self, env_steps: int) -> bool:
        """Have config.json ask for ``env_steps`` if it asks for fewer; return whether it did."""
        config = self.read_config()
        schedule = config.get("schedule", {})
        if schedule.get("env_steps", env_steps) >= env_steps:
            return False
        _write_json(self.config_json, {**config, "schedule": {**schedule, "env_steps": env_steps}})
        return True

    def close(self) -> None:
        """Free the lock."""
        # Closing, not unlocking: a forked child that gets here must not free its parent's lock.
        self._locks.close()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _settle(self, config: Values, meta: Values, *, replace: bool) -> None:
        """Bring the folder into the state that every process of the run starts from."""
        self.config = config
        for folder in self.folders:
            contained(folder, self.path)  # files are deleted in them
        remove_temporary(self.path)
        for file, values in ((self.config_json, config), (self.meta_json, meta)):
            if replace or not file.exists():
                _write_json(file, values)
        for folder in self.folders:
            folder.mkdir(exist_ok=True)
            remove_temporary(folder)
        sync_folder(self.path)  # else a power cut could take a folder with all its checkpoints


def _take_lock(run: RunFiles) -> ExitStack:
    locks = ExitStack()
    with _closed_on_error(locks):
        file = locks.enter_context(
            open_file(run.lock, "a+b", within=run.path, limit=_LONGEST_PID, buffering=0)
        )
        folder = locks.enter_context(FolderLock(run.path))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder.take()
        except BlockingIOError:
            file.seek(0)
            holder = file.read().decode(errors="replace").strip() or "unknown"
            raise InUseError(
                f"{run.path} is in use by another process (pid {holder}): "
                "wait for it, or choose another --out"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()).encode())
    return locks


def _write_json(file: Path, values: Values) -> None:
    write_atomic(file, (json.dumps(values, indent=1) + "\n").encode())


@contextmanager
def _closed_on_error(locks: ExitStack) -> Iterator[None]:
    try:
        yield
    except BaseException:
        locks.close()
        raise


def refuse_foreign(path: Path) -> None:
    """Refuse a folder that is neither empty nor a run directory; a missing one is fine."""
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    # A run killed before its config.json was in place leaves these two.
    others = sorted(name for name in names if name != LOCK and not name.endswith(SUFFIX))
    # A config.json alone is a run killed right after it.
    signs = {META_JSON, TRAIN_CSV, RunFiles(path).checkpoints.name}
    is_run = CONFIG_JSON in names and (others == [CONFIG_JSON] or not signs.isdisjoint(names))
    if others and (not is_run or EXPORTED_WEIGHTS in names):
        what = "an exported policy" if EXPORTED_WEIGHTS in names else "not a run directory"
        some = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        raise UserError(f"{path} is {what} (it has {some}): choose another folder")


def nearest_folder(path: Path) -> Path:
    """Return ``path``, or what of its parents exists: where it would be made."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def _refuse_closed(folder: Path) -> None:
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def has_begun(run: RunFiles) -> bool:
    """Return whether there is anything of the run to lose: a checkpoint or a row of a log."""
    rows = run.train_csv
    lines = read_file(rows, within=run.path).count(b"\n") if rows.exists() else 0
    return lines > 1 or any(run.checkpoints.glob("*")) or any(run.replay.glob("*"))


def _refuse_other(
    run: RunFiles, config: Values, comparable: Callable[[Values], Values]
) -> tuple[Values, bool]:
    """Refuse another run's folder; return the config there and whether it may be replaced."""
    there = run.read_config() if run.config_json.exists() else {}
    # A start that was refused leaves its config, which must not bind the next one.
    free = not has_begun(run) and there.keys() == config.keys()
    difference = first_difference(comparable(there), comparable(config))
    if there and not free and difference is not None:
        name, old, new = difference
        raise UserError(
            f"{run.path} holds another run: {name} is {old} there and {new} here; "
            "choose another --out"
        )
    return there, free


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
