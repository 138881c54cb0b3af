from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sibe.kernels import half_convolutions
from sibe.training import meta as meta_module
from sibe.training.meta import collect_meta, git_revision


def test_meta_tells_versions_and_machine_but_no_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(sys, "argv", ["/home/me/.venv/bin/sibe", "train", "--out", "a b"])
    monkeypatch.setenv("MUJOCO_GL", "egl")
    meta = collect_meta()
    assert meta["command"] == "sibe train --out 'a b'"
    # The wheel of PyPI says 2.13.0 in its metadata and 2.13.0+cu130 when imported.
    assert torch.__version__.startswith(meta["versions"]["torch"])
    assert set(meta["versions"]) == {
        *("python", "sibe", "torch", "mujoco", "dm_control", "gymnasium", "numpy")
    }
    assert all(meta["versions"].values())
    assert meta["torch_threads"] == torch.get_num_threads() and meta["cores"] == os.cpu_count()
    assert meta["cpu"] and meta["platform"] and meta["device"] and meta["MUJOCO_GL"] == "egl"
    assert meta["started"].endswith("+00:00")
    text = json.dumps(meta)
    for secret in (
        str(Path.home()) + "/",
        str(Path(meta_module.__file__).parents[1]),
        os.getcwd(),
    ):
        assert secret not in text
    monkeypatch.setattr(meta_module, "_PACKAGES", ("no-such-package",))
    assert collect_meta()["versions"]["no-such-package"] is None


def test_bfloat16_kernels_are_named_where_a_run_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_convolutions, "available", lambda: True)
    plain, half = (set(collect_meta(autocast=on)["kernels"]) for on in (False, True))
    assert half - plain == {"half_convolutions"} and not plain - half
    monkeypatch.setattr(half_convolutions, "available", lambda: False)
    assert set(collect_meta(autocast=True)["kernels"]) == plain


def git(folder: Path, *args: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *args], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_git_revision_follows_the_checkout(tmp_path: Path) -> None:
    package = tmp_path / "src"
    package.mkdir()
    (package / "a.py").write_text("1")
    assert git_revision(package) is None  # no repository
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    assert git_revision(package) is None  # no commit yet
    git(tmp_path, "rm", "--cached", "-r", ".")
    git(tmp_path, "commit", "--allow-empty", "-m", "other")
    assert git_revision(package) is None  # not tracked: somebody else's checkout
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "a")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert git_revision(package) == {"revision": head, "dirty": False}
    (tmp_path / "notes").touch()  # outside the package
    assert git_revision(package) == {"revision": head, "dirty": False}
    (package / "a.py").write_text("2")
    assert git_revision(package) == {"revision": head, "dirty": True}


def test_without_git_there_is_no_revision_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_revision(tmp_path) is None
    assert collect_meta()["git"] is None
