"""Files that may come from elsewhere: what is opened and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sibe.errors import UserError
from sibe.storage.contained_file import open_file, read_file
from sibe.storage.json_file import read_json


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(b"precious")
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "folder" / "a").write_bytes(b"content")
    return tmp_path / "folder"


def refused(path: Path, within: Path, mode: str = "rb") -> str:
    with pytest.raises(UserError) as caught:
        open_file(path, mode, within=within).close()
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("mode", ["rb", "r+b", "a+b"])
def test_links_out_of_the_folder_are_refused(folder: Path, mode: str) -> None:
    for name, target in [
        ("absolute", folder.parent / "secret"),
        ("relative", Path("..") / "secret"),
        ("dangling", folder.parent / "new"),
    ]:
        (folder / name).symlink_to(target)
        assert "leads out of" in refused(folder / name, folder, mode)
    (folder / "up").symlink_to("..")
    assert "leads out of" in refused(folder / "up" / "secret", folder, mode)
    assert (folder.parent / "secret").read_bytes() == b"precious"
    assert not (folder.parent / "new").exists()


def test_links_inside_and_links_to_the_folder_are_followed(folder: Path) -> None:
    (folder / "below" / "link").symlink_to("../a")
    (folder.parent / "runs").symlink_to(folder)
    through = folder.parent / "runs"
    assert read_file(folder / "below" / "link", within=folder) == b"content"
    assert read_file(through / "below" / "link", within=through) == b"content"
    with open_file(through / "new", "a+b", within=through) as file:
        file.write(b"x")
    assert (folder / "new").read_bytes() == b"x"


def test_a_snapshot_in_the_cache_of_the_hub_may_link_to_its_blobs_only(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    repository = tmp_path / "models--user--name"
    snapshot = repository / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "4567").write_bytes(b"content")
    (snapshot / "config.json").symlink_to("../../blobs/4567")
    (snapshot / "model.safetensors").symlink_to("../../../secret")
    assert read_file(snapshot / "config.json", within=snapshot) == b"content"
    assert "leads out of" in refused(snapshot / "model.safetensors", snapshot)


@pytest.mark.parametrize("mode", ["rb", "r+b", "a+b"])
def test_only_regular_files_are_opened(folder: Path, mode: str) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    assert "is a pipe" in refused(folder / "pipe", folder, mode)
    assert "is a folder" in refused(folder / "below", folder, mode)
    with pytest.raises(UserError, match="is a device"):
        open_file(folder / "zero", within=None)


def test_large_files_are_refused_unread(folder: Path) -> None:
    os.truncate(folder / "a", 1 << 40)  # sparse
    with pytest.raises(UserError, match="more than the 1000 that are read"):
        read_file(folder / "a", within=folder, limit=1000)


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "1" * 10_000, '"\\ud800"', b"\xff".decode("latin1")]
)
def test_what_is_no_json_is_a_value_error(folder: Path, text: str) -> None:
    (folder / "a").write_bytes(text.encode("latin1"))
    with pytest.raises(ValueError, match=r"."):
        read_json(folder / "a", within=folder)
