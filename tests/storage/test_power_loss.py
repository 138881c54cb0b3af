"""What is synced before it counts; tests/power_loss replays whole runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sibe.logs.csv_log import CsvLog
from sibe.storage import checkpoint
from sibe.storage.atomic import make_folder
from sibe.storage.run_directory import RunDirectory
from sibe.storage.temporary_folder import publish_folder, replacing_folder


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that are synced during a test, in order."""
    paths: list[Path] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        paths.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", note)
    return paths


def test_a_new_folder_is_synced_all_the_way_up(tmp_path: Path, synced: list[Path]) -> None:
    make_folder(tmp_path / "a" / "b" / "c")
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)
    synced.clear()
    make_folder(tmp_path / "a" / "b" / "c")  # made by a process that was killed, perhaps
    assert synced == [tmp_path / "a" / "b"]


def test_a_folder_that_cannot_be_read_can_be_written_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    make_folder(tmp_path / "a")
    assert (tmp_path / "a").is_dir()


def test_the_folders_of_a_run_are_safe_before_its_first_checkpoint(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, mkdir = [], Path.mkdir

    def note(path: Path, *args: Any, **options: Any) -> None:
        mkdir(path, *args, **options)
        made.append((path, len(synced)))

    monkeypatch.setattr(Path, "mkdir", note)
    with RunDirectory.create_or_open(tmp_path / "new" / "run", {"seed": 1}, {}) as run:
        assert {path.name for path, _ in made} >= {"run", "checkpoint", "replay"}
        for path, before in made:
            assert path.parent in synced[before:], path
        assert run.path.parent.parent in synced


def test_a_checkpoint_in_a_new_folder(tmp_path: Path, synced: list[Path]) -> None:
    checkpoint.save(tmp_path / "run" / "checkpoint", 1, {})
    assert {tmp_path, tmp_path / "run", tmp_path / "run" / "checkpoint"} <= set(synced)


def test_a_new_csv_file_is_in_its_folder_once_it_is_synced(
    tmp_path: Path, synced: list[Path]
) -> None:
    with CsvLog(tmp_path / "train.csv", ("frame",)) as log:
        log.sync()
        log.sync()
    assert synced == [tmp_path / "train.csv", tmp_path, tmp_path / "train.csv"]


@pytest.mark.parametrize("replace", [False, True])
def test_a_published_folder_is_safe_before_the_one_it_replaces_is_gone(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch, replace: bool
) -> None:
    out = tmp_path / "new" / "out"
    if replace:
        out.mkdir(parents=True)
    replaced: list[Path] = []
    rmtree = shutil.rmtree

    def note(path: Path, **options: Any) -> None:
        if path.suffix == ".old":
            assert synced[-1] == out.parent and (out / "file").exists()
            replaced.append(path)
        rmtree(path, **options)

    monkeypatch.setattr(shutil, "rmtree", note)
    with replacing_folder(out) as temporary:
        (temporary / "file").touch()
        publish_folder(temporary, out, replace=replace)
    assert len(replaced) == replace
    assert synced[-2:] == [temporary, out.parent]
    assert tmp_path in synced  # where "new" is
