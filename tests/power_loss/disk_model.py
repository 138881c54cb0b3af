"""What a disk may hold after a power cut: a file system without a journal, at its worst.

The model, which is what POSIX promises and no more:

- What was written to a file (data, truncation) is safe once that file was synced afterwards.
- What was done to a folder (a name made, renamed or deleted) is safe once that folder was synced.
  A folder that is itself not safe in its parent is lost with all that it holds.
- Everything else is pending: each operation may have reached the disk or not, in any order and
  without those before it. A rename may be there before the data of the file that it names.
- A pending write may be torn: only its beginning is there, or its length without its bytes (zeros).
- One change of a folder is not torn: a rename is there as a whole or not at all.

Journaling file systems promise more than this, so what survives here survives there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

ROOT = 0
Tree = dict[str, bytes | None]
"""Files by path with their content; folders with None."""
Fate = Literal["kept", "lost", "torn", "zeros"]


@dataclass(frozen=True)
class Change:
    """Names of a folder that now stand for another file, or for none."""

    folder: int
    names: tuple[tuple[str, int | None], ...]
    text: str

    @property
    def target(self) -> int:
        """What must be synced to make this safe."""
        return self.folder


@dataclass(frozen=True)
class Write:
    """Bytes written to a file."""

    target: int
    offset: int
    data: bytes
    text: str


@dataclass(frozen=True)
class Truncate:
    """A file that was cut off, or made longer."""

    target: int
    size: int
    text: str


@dataclass(frozen=True)
class Sync:
    """A file or a folder that was synced."""

    target: int
    text: str


Operation = Change | Write | Truncate | Sync


@dataclass(frozen=True)
class Start:
    """What was on the disk, safely, before the first operation."""

    folders: Mapping[int, Mapping[str, int]]
    files: Mapping[int, bytes]


class Disk:
    """A disk on which ``operations`` were done, one after the other."""

    def __init__(self, start: Start, operations: Iterable[Operation]) -> None:
        self.start, self.operations = start, tuple(operations)
        self._content = cache(self._make_content)

    def pending(self, end: int) -> list[int]:
        """Return which of the first ``end`` operations a power cut may undo."""
        left: list[int] = []
        for number, operation in enumerate(self.operations[:end]):
            if isinstance(operation, Sync):
                left = [n for n in left if self.operations[n].target != operation.target]
            else:
                left.append(number)
        return left

    def tree(self, end: int, fates: Mapping[int, Fate]) -> Tree:
        """Return what is left of the first ``end`` operations; those without a fate are kept."""
        folders = {inode: dict(names) for inode, names in self.start.folders.items()}
        done: dict[int, list[tuple[int, Fate]]] = {}
        for number, operation in enumerate(self.operations[:end]):
            fate = fates.get(number, "kept")
            if isinstance(operation, Change):
                here = folders.setdefault(operation.folder, {})
                for name, inode in operation.names if fate != "lost" else ():
                    if inode is None:
                        here.pop(name, None)
                    else:
                        here[name] = inode
            elif not isinstance(operation, Sync) and fate != "lost":
                done.setdefault(operation.target, []).append((number, fate))
        found: Tree = {}
        self._walk(ROOT, "", folders, done, found)
        return found

    def _walk(
        self,
        folder: int,
        path: str,
        folders: Mapping[int, Mapping[str, int]],
        done: Mapping[int, list[tuple[int, Fate]]],
        found: Tree,
    ) -> None:
        for name, inode in sorted(folders.get(folder, {}).items()):
            if inode < 0:  # see SystemCalls: folders count downwards
                found[path + name] = None
                self._walk(inode, f"{path}{name}/", folders, done, found)
            else:
                found[path + name] = self._content(inode, tuple(done.get(inode, ())))

    def _make_content(self, inode: int, done: tuple[tuple[int, Fate], ...]) -> bytes:
        content = bytearray(self.start.files.get(inode, b""))
        for number, fate in done:
            operation = self.operations[number]
            if isinstance(operation, Truncate):
                del content[operation.size :]
                content.extend(bytes(operation.size - len(content)))
            elif isinstance(operation, Write):
                data = operation.data
                if fate == "torn":
                    data = data[: len(data) // 2]
                elif fate == "zeros":
                    data = bytes(len(data))
                content.extend(bytes(max(0, operation.offset - len(content))))
                content[operation.offset : operation.offset + len(data)] = data
        return bytes(content)


def fingerprint(tree: Tree, *, unread: re.Pattern[str]) -> str:
    """Return a hash of a tree but for the content of files whose path matches ``unread``."""
    digest = hashlib.sha256()
    for path, content in sorted(tree.items()):
        kind = "folder" if content is None else "file"
        digest.update(f"{kind} {path}\n".encode())
        if content is not None and not unread.search(path):
            digest.update(_hash(content))
    return digest.hexdigest()


@cache
def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
