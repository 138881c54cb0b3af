"""The model of a power cut itself."""

from __future__ import annotations

import random

import pytest
from crash_states import Promise, crash_states, promises
from disk_model import ROOT, Change, Disk, Fate, Operation, Start, Sync, Truncate, Write

EMPTY = Start({ROOT: {}}, {})
CREATE = Change(ROOT, (("a", 1),), "create a")
DATA = Write(1, 0, b"12345678", "write 8 bytes to a")
RENAME = Change(ROOT, (("a", None), ("b", 1)), "rename a to b")
SYNC_FILE, SYNC_FOLDER = Sync(1, "sync a"), Sync(ROOT, "sync .")


@pytest.mark.parametrize(
    ("operations", "pending"),
    [
        ((CREATE, DATA), [0, 1]),
        ((CREATE, DATA, SYNC_FILE), [0]),
        ((CREATE, DATA, SYNC_FILE, RENAME), [0, 3]),
        ((CREATE, DATA, SYNC_FOLDER), [1]),
        ((CREATE, SYNC_FILE, DATA, SYNC_FOLDER), [2]),
    ],
)
def test_what_is_pending(operations: tuple[Operation, ...], pending: list[int]) -> None:
    assert Disk(EMPTY, operations).pending(len(operations)) == pending


@pytest.mark.parametrize(
    ("fates", "tree"),
    [
        ({}, {"b": b"12345678"}),
        ({0: "lost"}, {"b": b"12345678"}),
        ({2: "lost"}, {"a": b"12345678"}),
        ({1: "lost"}, {"b": b""}),
        ({1: "torn"}, {"b": b"1234"}),
        ({1: "zeros", 2: "lost"}, {"a": bytes(8)}),
        ({0: "lost", 2: "lost"}, {}),
    ],
)
def test_what_is_left(fates: dict[int, Fate], tree: dict[str, bytes]) -> None:
    assert Disk(EMPTY, (CREATE, DATA, RENAME)).tree(3, fates) == tree


def test_a_lost_folder_takes_its_files_with_it() -> None:
    operations = (Change(ROOT, (("f", -1),), "mkdir f"), Change(-1, (("a", 1),), "create f/a"))
    disk = Disk(EMPTY, (*operations, DATA, SYNC_FILE, Sync(-1, "sync f")))
    assert disk.pending(5) == [0]
    assert disk.tree(5, {0: "lost"}) == {}
    assert disk.tree(5, {}) == {"f": None, "f/a": b"12345678"}


def test_holes_and_truncation() -> None:
    later = Write(1, 8, b"9", "write 1 bytes to a")
    disk = Disk(EMPTY, (CREATE, DATA, later, Truncate(1, 3, "truncate a")))
    assert disk.tree(4, {1: "lost", 3: "lost"}) == {"a": bytes(8) + b"9"}
    assert disk.tree(4, {}) == {"a": b"123"}


def test_a_checkpoint_is_promised_when_its_folder_is_synced() -> None:
    folder = Start({ROOT: {"run": -1}, -1: {"checkpoint": -2, "train.csv": 7}}, {7: b"rows"})
    old, new = "x.tmp", "checkpoint_000000020.pt"
    text = f"rename run/checkpoint/{old} to {new}"
    operations = (
        Change(-2, ((old, 1),), f"create run/checkpoint/{old}"),
        Change(-2, ((old, None), (new, 1)), text),
        Sync(-2, "sync run/checkpoint"),
    )
    nothing = Promise(0, (b"", b"", b""))
    disk = Disk(folder, operations)
    assert [p.env_step for p in promises(disk, nothing)] == [0, 0, 0, 20]
    assert list(promises(disk, nothing))[-1].logs == (b"rows", b"", b"")
    states = crash_states(disk, nothing, random.Random(0), 1)
    assert {state.promise.env_step for state in states if new in str(state.tree)} == {20}
