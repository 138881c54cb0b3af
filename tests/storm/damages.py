"""The kinds of damage that a file or a folder may have."""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, Path, random.Random], None]
"""Takes the file, a folder outside of the run, and the case's randomness."""


def _edit(change: Callable[[bytearray, random.Random], bytes]) -> Damage:
    def damage(path: Path, outside: Path, chance: random.Random) -> None:
        path.write_bytes(change(bytearray(path.read_bytes()), chance))

    return damage


def _flip(first: float, last: float) -> Damage:
    def change(data: bytearray, chance: random.Random) -> bytes:
        if data:
            place = chance.randint(int(first * (len(data) - 1)), int(last * (len(data) - 1)))
            data[place] ^= 1 << chance.randrange(8)
        return bytes(data)

    return _edit(change)


def _zeros(data: bytearray, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    return bytes(data)


def _replace(make: Callable[[Path, Path], None]) -> Damage:
    def damage(path: Path, outside: Path, chance: random.Random) -> None:
        target = outside / "target"
        if path.is_dir():
            shutil.move(path, target)
        else:
            target.write_bytes(path.read_bytes())
            path.unlink()
        make(path, target)

    return damage


def _socket(path: Path, target: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def _file(path: Path, target: Path) -> None:
    path.write_text("x")


def _full_folder(path: Path, target: Path) -> None:
    path.mkdir()
    (path / "full").write_text("x")


def _huge(path: Path, target: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk


OF_FILES: dict[str, Damage] = {
    "cut": _edit(lambda data, chance: bytes(data[: chance.randrange(len(data) or 1)])),
    "last-byte-cut": _edit(lambda data, chance: bytes(data[:-1])),
    "flip-at-the-start": _flip(0, 0.01),
    "flip": _flip(0, 1),
    "flip-at-the-end": _flip(0.99, 1),
    "zeros": _edit(_zeros),
    "empty": _edit(lambda data, chance: b""),
    "garbage": _edit(lambda data, chance: chance.randbytes(len(data))),
    "appended": _edit(lambda data, chance: bytes(data) + chance.randbytes(40)),
    "doubled": _edit(lambda data, chance: bytes(data) * 2),
    "deleted": _replace(lambda path, target: None),
    "folder": _replace(lambda path, target: path.mkdir()),
    "full-folder": _replace(_full_folder),
    "link-out": _replace(lambda path, target: path.symlink_to(target)),
    "dangling-link": _replace(lambda path, target: path.symlink_to(target.parent / "nothing")),
    "link-to-itself": _replace(lambda path, target: path.symlink_to(path.name)),
    "fifo": _replace(lambda path, target: os.mkfifo(path)),
    "device": _replace(lambda path, target: path.symlink_to("/dev/zero")),
    "socket": _replace(_socket),
    "huge": _replace(_huge),
}
OF_FOLDERS: dict[str, Damage] = {
    "deleted": _replace(lambda path, target: None),
    "emptied": _replace(lambda path, target: path.mkdir()),
    "file": _replace(_file),
    "link-out": _replace(lambda path, target: path.symlink_to(target)),
    "link-to-itself": _replace(lambda path, target: path.symlink_to(path.name)),
    "fifo": _replace(lambda path, target: os.mkfifo(path)),
}
