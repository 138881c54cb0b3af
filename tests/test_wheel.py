"""The wheel is whole: installed into an empty environment, outside the source tree, it works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "sibe"


def run(*command: str | Path, cwd: Path) -> str:
    """Return what ``command`` prints; fail with its output if it fails."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built with the hatchling of this environment, so that nothing is downloaded."""
    out = tmp_path_factory.mktemp("dist")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, "--no-index", "--wheel-dir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; dependencies are looked up in the present one."""
    folder = tmp_path_factory.mktemp("installed")
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=folder)
    python = venv / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
    run(*pip, "--no-index", wheel, cwd=folder)
    here = sysconfig.get_paths()
    (site,) = venv.glob("lib/python*/site-packages")
    # A directory named in a .pth file comes last, and its own .pth files are not read: an editable
    # install of sibe in the present environment stays invisible.
    (site / "dependencies.pth").write_text(f"{here['purelib']}\n{here['platlib']}\n")
    return venv


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    files = {
        f"sibe/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("sibe/")}
    assert packed == files
    assert "sibe/py.typed" in packed


def test_one_version_everywhere(wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest and newest[1] == version


def test_the_installed_package_is_the_wheel(venv: Path, wheel: Path, tmp_path: Path) -> None:
    code = "import sibe; print(sibe.__file__, sibe.__version__)"
    file, version = run(venv / "bin" / "python", "-c", code, cwd=tmp_path).split()
    assert Path(file).is_relative_to(venv)
    assert version == wheel.name.split("-")[1]


def test_doctor_finds_nothing_wrong(venv: Path, tmp_path: Path) -> None:
    lines = run(venv / "bin" / "sibe", "doctor", "--preset", "debug", cwd=tmp_path).splitlines()
    assert lines and all(line.startswith("ok ") for line in lines)


def test_a_debug_run_and_its_report(venv: Path, tmp_path: Path) -> None:
    sibe = venv / "bin" / "sibe"
    short = ("--preset", "debug", "--env-steps", "1000", "--threads", "1")
    run(sibe, "train", *short, "--out", "run", cwd=tmp_path)
    assert len((tmp_path / "run" / "eval.csv").read_text().splitlines()) > 1
    run(sibe, "report", "run", "--out", "report", cwd=tmp_path)
    assert "<html" in (tmp_path / "report" / "report.html").read_text()
