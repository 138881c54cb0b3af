"""The command line from the outside: what it prints, where, and the exit code."""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sibe.cli import doctor
from sibe.cli import main as cli
from sibe.envs.backgrounds.clips import Footage, write_bank
from sibe.envs.rendering import gl
from sibe.envs.tasks import PAPER_BACKGROUNDS, PAPER_TASKS
from sibe.errors import UserError

CHECKS = ("python", "versions", "rendering", "torch", "kernels", "memory", "video")


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of `sibe ARGS`."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def assert_one_line(code: int, err: str, words: str) -> None:
    assert code == 2
    assert err.startswith("sibe: ")
    assert err.count("\n") == 1
    assert words in err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"sibe {version('sibe')}\n", "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("help", "sibe --version"),
        ("help tasks", "--picture"),
        ("help suite run", "--retries"),
        ("help train", "--sibe.alpha"),
    ],
)
def test_help_is_a_command_too(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *line.split())
    assert (code, err) == (0, "") and words in " ".join(out.split())


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "clip.mp4").write_text("this is no video")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("taks", "did you mean tasks?"),
        ("--picture", "unknown command '--picture'"),
        ("videos lst x", "did you mean list?"),
        ("tasks --pictur x.png", "did you mean --picture?"),
        ("tasks --size big", "--size"),
        ("tasks --picture", "--picture"),
        ("tasks --picture x.jpg", ".png"),
        ("help taks", "did you mean tasks?"),
        ("suite list --jobs 0", "--jobs must be at least 1"),
        ("suite run smoke --jobs 0", "--jobs must be at least 1"),
        ("suite run smoke --retries -1", "--retries must be at least 0"),
        ("suite run smoke --clips {}/empty", "none of these runs has a video background"),
        ("ladder --updates 0", "--updates must be at least 1"),
        ("ladder --clips {}/empty", "--clips has no effect with --background clean"),
        ("tasks --picture {}/x.png --size 0", "--size must be at least 1"),
        ("tasks --picture {}/x.png --size -4", "--size must be at least 1"),
        ("tasks --picture {}/x.png --size 8 --seed -1", "seed"),
        ("tasks --picture {}/text/clip.mp4/x.png --size 8", "clip.mp4"),
        ("doctor --preset cp", "did you mean cpu?"),
        ("videos prepare {}/nowhere --out {}/bank", "nowhere is not a folder"),
        ("videos prepare {}/empty --out {}/bank", "empty holds no video"),
        ("videos prepare {}/text --out {}/bank", "no clip in"),
        ("videos prepare {}/text --out {}/bank --size 0", "size of 0"),
        ("videos prepare {}/text --out {}/bank --size -5", "size of -5"),
        ("videos prepare {}/text", "--out"),
        ("videos list {}/empty", "not a clip bank"),
        ("train --task walker_wlk", "did you mean walker_walk"),
        ("train --background nois", "did you mean noise?"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    line: str, words: str, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, *line.replace("{}", str(folders)).split())
    assert_one_line(code, err, words)
    assert sorted(path.name for path in folders.iterdir()) == ["empty", "text"]


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_any_terminal_gets_the_message(encoding: str) -> None:
    command = [sys.executable, "-m", "sibe"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "40"}
    bad, helped = (
        subprocess.run([*command, word], env=environment, capture_output=True, text=True)
        for word in ("taks", "--help")
    )
    assert_one_line(
        bad.returncode, bad.stderr, "'taks'; did you mean tasks? (there are train, eval"
    )
    assert (helped.returncode, helped.stderr) == (0, "")


def test_an_unreadable_file_is_named(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(
        capsys, "videos", "prepare", str(folders / "text"), "--out", str(folders / "bank")
    )
    assert "clip.mp4" in out + err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"MUJOCO_GL": "vulkan"}, "MUJOCO_GL=vulkan is not a backend"),
        ({"MUJOCO_GL": "glfw"}, "needs a display"),
        ({"MUJOCO_GL": "glfw", "DISPLAY": ":99"}, "OpenGL does not start (MUJOCO_GL=glfw)"),
        ({"PYOPENGL_PLATFORM": "osmesa"}, "PYOPENGL_PLATFORM"),
    ],
)
def test_a_backend_that_cannot_draw_is_told_in_one_line(
    settings: dict[str, str], words: str, tmp_path: Path
) -> None:
    names = ("MUJOCO_GL", "PYOPENGL_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-m", "sibe", "tasks", "--picture", str(tmp_path / "x.png")],
        env={**clean, **settings},
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stderr.splitlines() if "GLFWError" not in line]
    assert done.returncode == 2
    assert words in lines[-1]
    assert "Traceback" not in done.stderr
    if "DISPLAY" not in settings:  # GLFW itself has something to say about a display that is dead
        assert len(lines) == 1


def test_a_backend_that_is_not_installed_is_told_with_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(gl._LIBRARIES, "osmesa", "libNoSuchThing.so.1")
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    code, _, err = run(capsys, "tasks", "--picture", str(tmp_path / "x.png"))
    assert_one_line(code, err, "apt-get install -y libosmesa6")


def test_without_any_backend_the_line_to_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gl, "_installed", lambda backend: False)
    with pytest.raises(UserError, match="apt-get install -y libegl1 libgl1-mesa-dri"):
        gl.select_backend()


@pytest.mark.parametrize(
    ("installed", "display", "chosen"),
    [("egl osmesa", ":0", "egl"), ("osmesa", "", "osmesa"), ("", ":0", "glfw")],
)
def test_the_backend_is_chosen_and_a_choice_is_kept(
    installed: str, display: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gl, "_installed", lambda backend: backend in installed.split())
    monkeypatch.setenv("MUJOCO_GL", "")
    monkeypatch.setenv("DISPLAY", display)
    assert gl.select_backend() == chosen == os.environ["MUJOCO_GL"]
    monkeypatch.setattr(gl, "_installed", lambda backend: True)
    monkeypatch.setenv("MUJOCO_GL", "OSMesa")
    assert gl.select_backend() == "osmesa" == os.environ["MUJOCO_GL"]


def test_macos_needs_no_display_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(gl, "_installed", lambda backend: False)
    monkeypatch.setattr("sys.platform", "darwin")
    assert gl.select_backend() == "glfw"


def test_the_pair_that_cannot_load_a_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.0.0")
    with pytest.raises(UserError, match=r"pip install 'mujoco>=3.17,<4'"):
        gl.check_versions()


def test_doctor_is_content_here(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--preset", "debug")
    assert code == 0
    names = [line.split()[:2] for line in out.splitlines()]
    assert names == [["ok", name] for name in CHECKS]


@pytest.mark.parametrize(
    ("broken", "error", "words"),
    [
        ("check_rendering", UserError("no OpenGL"), "rendering  no OpenGL"),
        ("check_torch", ImportError("no torch"), "torch      ImportError: no torch"),
        ("check_video", RuntimeError("two\nlines"), "video      RuntimeError: two lines"),
        ("check_versions", doctor.Trouble("pip install"), "versions   pip install"),
    ],
)
def test_doctor_names_what_is_broken_and_checks_the_rest(
    broken: str,
    error: Exception,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> str:
        raise error

    monkeypatch.setattr(doctor, broken, fail)
    code, out, _ = run(capsys, "doctor", "--preset", "debug")
    assert code == 1
    assert f"FAIL  {words}\n" in out
    assert out.count("\nok ") + out.startswith("ok ") == len(CHECKS) - 1


def test_doctor_counts_memory_and_disk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sibe.training.resources.replay_ram_bytes", lambda config: 10**15)
    code, out, _ = run(capsys, "doctor", "--preset", "debug")
    assert code == 1
    assert "FAIL  memory     the replay needs 1000000.0 GB of RAM" in out


def test_tasks_lists_every_task_and_marks_the_six(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "tasks")
    assert code == 0
    starred = {line.split()[1] for line in out.splitlines() if line.startswith("* ")}
    assert starred == set(PAPER_TASKS)
    assert "hopper_stand" in out


def test_the_picture_shows_six_tasks_in_three_settings(
    bank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "sheet.png"
    line = f"tasks --picture {path} --clips {bank} --size 24"
    code, out, _ = run(capsys, *line.split())
    assert code == 0
    assert str(path) in out
    assert [file.name for file in path.parent.iterdir()] == ["sheet.png"]
    sheet = np.asarray(Image.open(path).convert("RGB")).astype(int)
    # Noise and the (random) clips are many colors, sky and floor are shades of blue.
    warm = (sheet[..., 0] > sheet[..., 2] + 60).astype(int)
    thirds = [third.mean() for third in np.array_split(warm, len(PAPER_BACKGROUNDS), axis=0)]
    assert min(thirds[1:]) > 1.5 * thirds[0] > 0


def test_a_closed_standard_output_is_no_reason_to_fail(tmp_path: Path) -> None:
    line = f"train --preset debug --method none --env-steps 1000 --no-video --out {tmp_path}/run"
    command = f"{shlex.quote(sys.executable)} -m sibe {line} <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", command], env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0
    assert (tmp_path / "run" / "curve.png").exists()
    assert (tmp_path / "run" / "train.csv").read_text().startswith("frame,")


def test_names_in_a_bank_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = np.zeros((1, 8, 8, 3), np.uint8)
    footage = [Footage("a\x1b[2Jb\x9b\u202e", "", frames)]
    write_bank(tmp_path / "bank", footage, lambda _: ["train"], kind="videos", size=8)
    code, out, _ = run(capsys, "videos", "list", str(tmp_path / "bank"))
    assert code == 0 and "a?[2Jb??" in out
    (tmp_path / "\x1b]0;x").mkdir()
    code, _, err = run(capsys, "eval", str(tmp_path / "\x1b]0;x"))
    assert code == 2 and "\x1b" not in err
