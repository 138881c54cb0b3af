"""What a process did to a folder, recorded from outside by strace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

from disk_model import ROOT, Change, Disk, Operation, Start, Sync, Tree, Truncate, Write

_BY_NAME = ("open", "openat", "creat", "rename", "renameat", "renameat2", "mkdir", "mkdirat")
_DELETING = ("unlink", "unlinkat", "rmdir")
_BY_DESCRIPTOR = ("close", "lseek", "write", "pwrite64", "ftruncate", "fsync", "fdatasync")
_UNKNOWN = (
    *("writev", "pwritev", "pwritev2", "truncate", "fallocate", "link", "linkat", "symlink"),
    *("symlinkat", "copy_file_range", "sendfile"),
)
_HEX = r"(?:\\x[0-9a-f]{2})*"
_LINE = re.compile(r"\d+\.\d+ (\w+)\((.*)\) += (\d+)(?:<.*>)?(?: .*)?")
_NAME = re.compile(rf'(?:(?:AT_FDCWD|\d+)<({_HEX})>, )?"({_HEX})"')
_DESCRIPTOR = re.compile(rf"(\d+)<({_HEX})>")


def record(command: Sequence[str], folder: Path, logs: Path, env: Mapping[str, str]) -> Disk:
    """Run ``command`` to its end; return what it did below ``folder``."""
    if shutil.which("strace") is None:
        raise SystemExit("strace is missing: apt-get install strace")
    start, live = _look(folder)
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    tracer = ["strace", "-ff", "-y", "-xx", "-ttt", "-s", str(1 << 26), "-o", str(logs / "log")]
    calls = ",".join((*_BY_NAME, *_DELETING, *_BY_DESCRIPTOR, *_UNKNOWN))
    done = subprocess.run(
        [*tracer, "-e", f"trace={calls}", *command], env=dict(env), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed under strace:\n{done.stderr}")
    sizes = {inode: len(content) for inode, content in start.files.items()}
    disk = Disk(start, _Calls(folder, live, sizes).operations(_lines(logs)))
    if disk.tree(len(disk.operations), {}) != read_tree(folder):
        raise SystemExit("the recorded calls do not give the files that are there: some are missed")
    return disk


def read_tree(folder: Path) -> Tree:
    """Return what is below ``folder``."""
    paths = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes() for p in paths}


class _Live:
    """Which file or folder a path stands for; folders count downwards from the root's 0."""

    def __init__(self) -> None:
        self.folders: dict[int, dict[str, int]] = {ROOT: {}}
        self._files, self._folders = count(1), count(-1, -1)

    def new_file(self) -> int:
        return next(self._files)

    def new_folder(self) -> int:
        inode = next(self._folders)
        self.folders[inode] = {}
        return inode

    def find(self, parts: Sequence[str]) -> int | None:
        inode: int | None = ROOT
        for part in parts:
            inode = None if inode is None else self.folders.get(inode, {}).get(part)
        return inode

    def parent(self, parts: Sequence[str]) -> int:
        found = self.find(parts[:-1])
        assert found is not None, parts
        return found


def _look(folder: Path) -> tuple[Start, _Live]:
    live, files = _Live(), {}
    for path, content in read_tree(folder).items():
        parts = path.split("/")
        inode = live.new_folder() if content is None else live.new_file()
        live.folders[live.parent(parts)][parts[-1]] = inode
        if content is not None:
            files[inode] = content
    return Start({inode: dict(names) for inode, names in live.folders.items()}, files), live


def _lines(logs: Path) -> list[str]:
    # One log per thread, so that no call is cut in two by another; the clock gives their order.
    lines = [line for log in logs.iterdir() for line in log.read_text().splitlines()]
    return sorted(lines, key=lambda line: float(line.partition(" ")[0]))


class _Calls:
    """Turns system calls into operations on the disk."""

    def __init__(self, folder: Path, live: _Live, sizes: dict[int, int]) -> None:
        self._root, self._live, self._sizes = os.path.realpath(folder), live, sizes
        self._positions: dict[int, int | None] = {}  # by descriptor; None: it appends

    def operations(self, lines: Sequence[str]) -> Iterator[Operation]:
        for line in lines:
            match = _LINE.fullmatch(line)
            if match is not None:  # a call that succeeded
                yield from self._one(match[1], match[2], int(match[3]))

    def _one(self, call: str, args: str, result: int) -> Iterator[Operation]:
        if call in _BY_DESCRIPTOR or (call in _UNKNOWN and _DESCRIPTOR.match(args)):
            match = _DESCRIPTOR.match(args)
            parts = None if match is None else self._parts(_bytes(match[2]).decode())
            if match is not None and parts is not None:
                yield from self._described(call, int(match[1]), parts, args, result)
            return
        names = [
            self._parts(os.path.join(_bytes(at).decode(), _bytes(name).decode()))
            for at, name in _NAME.findall(args)
        ]
        if any(name is not None for name in names):
            yield from self._named(call, [name or [] for name in names], args, result)

    def _parts(self, path: str) -> list[str] | None:
        """Return the parts of a path below the folder, [] for itself, None for elsewhere."""
        path = os.path.normpath(path)
        if path != self._root and not path.startswith(f"{self._root}/"):
            return None
        return [part for part in path[len(self._root) :].split("/") if part]

    def _named(
        self, call: str, names: list[list[str]], args: str, result: int
    ) -> Iterator[Operation]:
        parts, path = names[0], "/".join(names[0])
        if call in ("open", "openat", "creat"):
            inode = self._live.find(parts)
            if inode is None:
                inode = self._live.new_file()
                self._sizes[inode] = 0
                yield self._change(parts, inode, f"create {path}")
            elif "O_TRUNC" in args:
                self._sizes[inode] = 0
                yield Truncate(inode, 0, f"truncate {path}")
            self._positions[result] = None if "O_APPEND" in args else 0
        elif call in ("mkdir", "mkdirat"):
            yield self._change(parts, self._live.new_folder(), f"mkdir {path}")
        elif call in _DELETING:
            yield self._change(parts, None, f"delete {path}")
        elif call in ("rename", "renameat", "renameat2") and names[0][:-1] == names[1][:-1]:
            inode, old, new = self._live.find(parts), parts[-1], names[1][-1]
            self._change(parts, None, "")
            self._change(names[1], inode, "")
            folder = self._live.parent(parts)
            yield Change(folder, ((old, None), (new, inode)), f"rename {path} to {new}")
        else:
            raise SystemExit(f"{call} {names} is not modeled")

    def _change(self, parts: Sequence[str], inode: int | None, text: str) -> Change:
        folder, name = self._live.parent(parts), parts[-1]
        if inode is None:
            del self._live.folders[folder][name]
        else:
            self._live.folders[folder][name] = inode
        return Change(folder, ((name, inode),), text)

    def _described(
        self, call: str, number: int, parts: Sequence[str], args: str, result: int
    ) -> Iterator[Operation]:
        inode, path = self._live.find(parts), "/".join(parts)
        if inode is None:  # deleted since it was opened
            return
        if call in ("fsync", "fdatasync"):
            yield Sync(inode, f"sync {path or '.'}")
        elif call == "lseek" and self._positions[number] is not None:
            self._positions[number] = result
        elif call == "ftruncate":
            self._sizes[inode] = int(args.rpartition(", ")[2])
            yield Truncate(inode, self._sizes[inode], f"truncate {path}")
        elif call in ("write", "pwrite64"):
            match = _NAME.search(args)
            assert match is not None
            data = _bytes(match[2])[:result]
            position = self._positions[number]
            offset = self._sizes[inode] if position is None else position
            if call == "pwrite64":
                offset = int(args.rpartition(", ")[2])
            elif position is not None:
                self._positions[number] = offset + result
            self._sizes[inode] = max(self._sizes[inode], offset + result)
            yield Write(inode, offset, data, f"write {len(data)} bytes to {path}")
        elif call in _UNKNOWN:
            raise SystemExit(f"{call} of {path} is not modeled")


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))
