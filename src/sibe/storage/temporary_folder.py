"""Temporary folders that a killed process does not leave for ever.

Whoever uses one holds its lock, which the system frees when the process ends, however that is: a
temporary folder that nobody has locked is a leftover, and the next one to make its like deletes it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sibe.storage.atomic import make_folder, sync_folder
from sibe.storage.folder_lock import FolderLock

_TMP, _OLD = ".tmp", ".old"


@contextmanager
def temporary_folder(parent: Path, prefix: str, *, mode: int = 0o777) -> Iterator[Path]:
    """Yield a new folder in ``parent``; what is left of it in the end is deleted.

    Args:
        parent: made if missing.
        prefix: of its name, and of the leftovers that are deleted first.
        mode: its permissions, less the umask.
    """
    make_folder(parent)
    remove_leftovers(parent, prefix)
    folder, lock = _make(parent, prefix, mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


@contextmanager
def replacing_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``out``, to be given to ``publish_folder``.

    An earlier ``out`` that a killed ``publish_folder`` had moved aside is put back first.
    """
    prefix = f".{out.name}."
    for old in _unused(out.parent, prefix, _OLD):
        if out.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(out)
    with temporary_folder(out.parent, prefix) as folder:
        yield folder


def publish_folder(temporary: Path, out: Path, *, replace: bool) -> None:
    """Rename the finished folder ``temporary`` to ``out`` beside it, which is missing or empty.

    Its files must be on disk; then all of it is when this returns.

    With ``replace`` an earlier folder there steps aside, is deleted at the end, and comes back if
    the rename fails.
    """
    sync_folder(temporary)
    if not (replace and out.exists()):
        temporary.rename(out)
        sync_folder(out.parent)
        return
    old = temporary.with_suffix(_OLD)
    with FolderLock(out) as lock:
        lock.take(shared=True)  # nobody may take it for a leftover meanwhile
        try:
            out.rename(old)
            temporary.rename(out)
        except BaseException:
            if old.exists() and not out.exists():
                old.rename(out)
            raise
        sync_folder(out.parent)  # before what it replaces is gone
        shutil.rmtree(old, ignore_errors=True)


def remove_leftovers(parent: Path, prefix: str) -> None:
    """Delete the temporary folders of processes that have ended."""
    for folder in _unused(parent, prefix, _TMP):
        shutil.rmtree(folder, ignore_errors=True)


def _make(parent: Path, prefix: str, mode: int) -> tuple[Path, FolderLock]:
    while True:
        folder = parent / f"{prefix}{secrets.token_hex(8)}{_TMP}"
        folder.mkdir(mode=mode)
        try:
            lock = FolderLock(folder)
        except FileNotFoundError:  # taken for a leftover before it was locked
            continue
        try:
            lock.take()
        except BlockingIOError:
            lock.close()
            continue
        if folder.exists():
            return folder, lock
        lock.close()


def _unused(parent: Path, prefix: str, suffix: str) -> Iterator[Path]:
    """Yield the folders of such names that are this user's own and that nobody has locked."""
    if not parent.is_dir():
        return
    with os.scandir(parent) as entries:
        named = [e for e in entries if e.name.startswith(prefix) and e.name.endswith(suffix)]
    for entry in named:
        try:
            is_own = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            if not is_own or not entry.is_dir(follow_symlinks=False):
                continue
            with FolderLock(Path(entry.path)) as lock:
                if lock.take():
                    yield Path(entry.path)
        except OSError:  # in use, or gone meanwhile
            continue
