from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import check, from_json, to_json
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.experiments.status import is_locked
from sibe.storage import run_directory
from sibe.storage.atomic import SUFFIX
from sibe.storage.run_directory import RunDirectory
from sibe.storage.run_files import RunFiles

CONFIG = to_json(RunConfig())
META = {"versions": {"sibe": "0"}}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def refused(path: Path, config: dict[str, Any] = CONFIG) -> str:
    with pytest.raises(UserError) as caught:
        RunDirectory.create_or_open(path, config, META).close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- a new run, and coming back to it -------------------------------------------------------


def test_a_new_run_has_config_meta_and_folders(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a"
    with RunDirectory.create_or_open(path, CONFIG, META) as run:
        assert run.path == path and run.config == CONFIG
        assert json.loads((path / "config.json").read_text()) == CONFIG
        assert json.loads((path / "meta.json").read_text()) == META
        folders = {run.checkpoints, run.replay, run.videos, run.tensorboard}
        assert folders == {path / n for n in ("checkpoint", "replay", "video", "tensorboard")}
        assert all(folder.is_dir() for folder in folders)
        tables = (run.train_csv, run.eval_csv, run.eval_episodes_csv)
        assert [t.name for t in tables] == ["train.csv", "eval.csv", "eval_episodes.csv"]
        assert all(table.parent == path for table in tables)


def test_the_same_config_comes_back_and_changes_nothing(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()
    (tmp_path / "train.csv").write_text("frame\n")
    (tmp_path / "replay" / "episode").write_text("frames")
    before = files(tmp_path)
    with RunDirectory.create_or_open(tmp_path, CONFIG, {"other": 1}) as run:
        assert run.config == CONFIG
    assert files(tmp_path) == before
    assert (tmp_path / "replay" / "episode").read_text() == "frames"


def test_tuples_are_the_lists_that_json_makes_of_them(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path, {"strides": (2, 1)}, META).close()
    with RunDirectory.create_or_open(tmp_path, {"strides": (2, 1)}, META) as run:
        assert run.config == {"strides": [2, 1]}


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()
    left = [tmp_path / folder / f"x.{SUFFIX}" for folder in (".", "checkpoint", "replay", "video")]
    for path in left:
        path.touch()
    (tmp_path / "meta.json").unlink()  # killed between the two files
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()
    assert not any(path.exists() for path in left)
    assert json.loads((tmp_path / "meta.json").read_text()) == META


def test_killed_before_the_config_was_in_place_it_is_still_ours(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("1")
    (tmp_path / f"config.json.01234567{SUFFIX}").write_text("{")
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()
    assert set(files(tmp_path)) == {".lock", "config.json", "meta.json"}


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 2}, "seed is 1 there and 2 here"),
        (
            {"env": {**CONFIG["env"], "background": "noise"}},
            'env.background is "clean" there and "noise" here',
        ),
        (
            {"encoder": {**CONFIG["encoder"], "strides": [1, 1, 1, 1]}},
            "encoder.strides is [2, 1, 1, 1] there and [1, 1, 1, 1] here",
        ),
        ({"seed": 3, "method": "none"}, "seed is 1 there and 3 here"),
        ({"future": None}, 'future is "unset" there and null here'),
    ],
)
def test_another_config_is_refused_by_its_first_difference(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()
    (tmp_path / "checkpoint" / "checkpoint_000001000.pt").touch()
    before = files(tmp_path)
    found = refused(tmp_path, {**CONFIG, **change})
    assert message in found and str(tmp_path) in found and "--out" in found
    assert files(tmp_path) == before
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()  # the refusal has freed the lock


def test_a_run_that_has_not_begun_takes_another_config(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()
    other = {**CONFIG, "seed": 2}
    RunDirectory.create_or_open(tmp_path, other, META).close()
    assert RunFiles(tmp_path).read_config()["seed"] == 2


def test_the_id_on_a_tracker_belongs_to_one_config(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()
    (tmp_path / "tracker.json").write_text("{}")
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()
    assert (tmp_path / "tracker.json").exists()
    RunDirectory.create_or_open(tmp_path, {**CONFIG, "seed": 2}, META).close()
    assert not (tmp_path / "tracker.json").exists()


def test_only_what_is_comparable_must_agree(tmp_path: Path) -> None:
    def without_note(config: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in config.items() if name != "note"}

    def come(config: dict[str, Any]) -> None:
        RunDirectory.create_or_open(tmp_path, config, META, comparable=without_note).close()

    come({"seed": 1, "note": "a"})
    (tmp_path / "train.csv").write_text("frame\n1000\n")
    come({"seed": 1, "note": "b"})
    assert RunFiles(tmp_path).read_config() == {"seed": 1, "note": "a"}
    with pytest.raises(UserError, match="seed is 1 there and 2 here"):
        come({"seed": 2, "note": "a"})


def test_a_field_that_only_the_old_config_has_is_a_difference(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path, {"a": 1, "b": {"c": 2}}, META).close()
    (tmp_path / "train.csv").write_text("frame\n1000\n")
    assert 'b.c is 2 there and "unset" here' in refused(tmp_path, {"a": 1, "b": {}})


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    message = refused(tmp_path)
    assert "thesis.tex" in message and "choose another folder" in message
    assert files(tmp_path) == {"thesis.tex": b"x"}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("config.json", "model.safetensors", "README.md", "replay.mp4"), "an exported policy"),
        (("config.json", "meta.json", "model.safetensors"), "an exported policy"),
        (("config.json", "pytorch_model.bin"), "not a run directory"),
        (("meta.json",), "not a run directory"),
    ],
)
def test_a_config_json_alone_makes_no_run(
    tmp_path: Path, names: tuple[str, ...], words: str
) -> None:
    for name in names:
        (tmp_path / name).write_text(json.dumps(CONFIG))
    before = files(tmp_path)
    message = refused(tmp_path)
    assert (f"is {words} (it has " in message and names[-1] in message) or "…" in message
    with pytest.raises(UserError, match=words):
        RunDirectory.check(tmp_path, CONFIG)
    assert files(tmp_path) == before


def test_a_check_refuses_the_same_and_writes_nothing(tmp_path: Path) -> None:
    RunDirectory.check(tmp_path / "new", CONFIG)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError, match="Not a directory"):
            RunDirectory.check(path, CONFIG)
    with RunDirectory.create_or_open(tmp_path / "run", CONFIG, META) as run:
        run.train_csv.write_text("frame\n1000\n")
        with pytest.raises(UserError, match="in use"):
            RunDirectory.check(run.path, CONFIG)
    RunDirectory.check(run.path, CONFIG)
    with pytest.raises(UserError, match="seed is 1 there and 2 here"):
        RunDirectory.check(run.path, {**CONFIG, "seed": 2})


def test_extending_changes_nothing_but_the_env_steps(tmp_path: Path) -> None:
    config = {"seed": 1, "schedule": {"env_steps": 100, "video": True}}
    with RunDirectory.create_or_open(tmp_path, config, META) as run:
        assert not run.extend(100) and not run.extend(50)
        assert run.extend(200)
    wanted = {"seed": 1, "schedule": {"env_steps": 200, "video": True}}
    assert RunFiles(tmp_path).read_config() == wanted


def test_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "File exists" in refused(tmp_path / "file")
    assert "Not a directory" in refused(tmp_path / "file" / "run")


def test_a_place_where_nobody_may_write_is_one_line() -> None:
    # /proc refuses even root, who runs the tests in a container.
    message = refused(Path("/proc/sibe-run"))
    assert "cannot use /proc/sibe-run" in message and "--out" in message


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC])
def test_read_only_or_full_is_one_line_and_frees_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise OSError(code, os.strerror(code), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(run_directory, "write_atomic", fail)
        assert os.strerror(code) in refused(tmp_path)
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()


def test_what_is_no_run_cannot_be_read(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "missing", "no run directory"), (tmp_path, "no config.json")):
        with pytest.raises(UserError, match=message) as caught:
            RunFiles(path).read_config()
        assert str(path) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b'{"seed": 1', b"[1]", b"\xff\xfe", b"\x00" * 100])
def test_a_damaged_config_is_one_line_that_names_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UserError) as caught:
        RunFiles(tmp_path).read_config()
    for message in (str(caught.value), refused(tmp_path)):
        assert str(tmp_path / "config.json") in message and "damaged" in message
    assert (tmp_path / "config.json").read_bytes() == content


@pytest.mark.parametrize("content", [None, b"", b"[1]", b"\xff\xfe"])
def test_a_lost_or_damaged_meta_is_empty(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "meta.json").write_bytes(content)
    assert RunFiles(tmp_path).read_meta() == {}


# --- the lock -------------------------------------------------------------------------------

HOLDER = """
import json, sys, time
from pathlib import Path
from sibe.storage.run_directory import RunDirectory
path = Path(sys.argv[1])
run = RunDirectory.create_or_open(path, json.loads((path / "config.json").read_text()), {})
print("locked", flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
            message = refused(tmp_path)
            assert f"is in use by another process (pid {holder.pid})" in message
            assert RunFiles(tmp_path).read_config() == CONFIG  # readers need no lock
        finally:
            os.kill(holder.pid, signal.SIGKILL)
    with RunDirectory.create_or_open(tmp_path, CONFIG, META):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_a_second_object_is_refused_and_does_not_disturb_the_first(tmp_path: Path) -> None:
    with RunDirectory.create_or_open(tmp_path, CONFIG, META):
        for _ in range(2):
            assert f"(pid {os.getpid()})" in refused(tmp_path)
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()


def test_a_child_that_closes_its_copy_does_not_free_the_lock(tmp_path: Path) -> None:
    with RunDirectory.create_or_open(tmp_path, CONFIG, META) as run:
        pid = os.fork()
        if pid == 0:
            run.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert "is in use" in refused(tmp_path)


def test_an_error_inside_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), RunDirectory.create_or_open(tmp_path, CONFIG, META):
        raise RuntimeError
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()


# --- a config from elsewhere ----------------------------------------------------------------


@pytest.mark.parametrize("bad", [None, "x", [1], {}, 2.5])
def test_a_config_with_a_wrong_type_is_one_line(bad: object) -> None:
    """An export is passed between people: whatever its config.json holds is no traceback."""
    good = to_json(preset_config("debug"))
    assert to_json(from_json(json.loads(json.dumps(good)))) == good
    sections = [(good, name) for name in good]
    sections += [(part, name) for part in good.values() if isinstance(part, dict) for name in part]
    for part, name in sections:
        kept = part[name]
        part[name] = bad
        with contextlib.suppress(UserError):  # some values fit: a float, a path, None
            check(from_json(json.loads(json.dumps(good))))
        part[name] = kept
    if bad != {}:  # a section without fields has their defaults
        with pytest.raises(UserError, match=r"config\.json does not fit"):
            from_json({**good, "sac": bad})


# --- links, and a lock that is gone ---------------------------------------------------------


@pytest.mark.parametrize("name", [".lock", "config.json", "checkpoint", "replay"])
def test_links_out_of_a_run_are_refused_and_their_targets_kept(tmp_path: Path, name: str) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    RunDirectory.create_or_open(run, CONFIG, META).close()
    elsewhere.mkdir()
    (elsewhere / "config.json").write_text(json.dumps(CONFIG))
    (elsewhere / "precious").write_text("precious")
    old = run / name
    if old.is_dir():
        old.rmdir()
        old.symlink_to(elsewhere)
    else:
        old.unlink()
        old.symlink_to(elsewhere / ("config.json" if name == "config.json" else "precious"))
    before = files(elsewhere)
    assert f"{run / name} is a link that leads out of" in refused(run)
    assert files(elsewhere) == before


def test_a_run_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "scratch")
    with RunDirectory.create_or_open(tmp_path / "runs" / "a", CONFIG, META):
        assert "is in use" in refused(tmp_path / "scratch" / "a")
    (tmp_path / "b").symlink_to(tmp_path / "runs" / "a")
    RunDirectory.create_or_open(tmp_path / "b", CONFIG, META).close()


def test_deleting_the_lock_file_lets_nobody_in(tmp_path: Path) -> None:
    with RunDirectory.create_or_open(tmp_path, CONFIG, META):
        (tmp_path / ".lock").unlink()
        assert "is in use by another process" in refused(tmp_path)
        assert is_locked(tmp_path)
        (tmp_path / ".lock").unlink()
        assert is_locked(tmp_path)
    RunDirectory.create_or_open(tmp_path, CONFIG, META).close()
    assert not is_locked(tmp_path)


def test_where_folders_cannot_be_locked_the_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def on_nfs(file: Any, operation: int) -> None:
        if isinstance(file, int):  # a folder's descriptor
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", on_nfs)
    with RunDirectory.create_or_open(tmp_path, CONFIG, META):
        assert "is in use" in refused(tmp_path) and is_locked(tmp_path)
