"""The commands of the README, in order, as a reader would type them after one another.

Only sizes are made small: the debug preset, fewer episodes, and pages that are saved, not served.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sibe.logs.video import write_mp4

ROOT = Path(__file__).parents[1]
SMALLER = {"--preset cpu": "--preset debug", "--env-steps 200000": "--env-steps 4000"}
SMALLER |= {"--episodes 10": "--episodes 2"}


def commands(page: Path) -> list[str]:
    """Return the lines of the indented blocks, without their comments."""
    lines = re.findall(r"^ {4}((?:sibe|make|\.) .*)$", page.read_text(), flags=re.MULTILINE)
    return [line.split("  #")[0].strip() for line in lines]


def small(command: str) -> str:
    """Make a command small; what it does stays."""
    for old, new in SMALLER.items():
        command = command.replace(old, new)
    verb = command.split()[1]
    if verb == "train" and "--preset" not in command and "--resume" not in command:
        command += " --preset debug"
    if verb == "watch":
        command += " --no-browser --save watch.html"
    return command


def test_commands_follow_from_one_another(tmp_path: Path) -> None:
    (tmp_path / "FOLDER").mkdir()  # the reader's videos
    frames = np.random.default_rng(0).integers(0, 255, size=(40, 48, 64, 3), dtype=np.uint8)
    for name in ("a", "b"):
        write_mp4(tmp_path / "FOLDER" / f"{name}.mp4", list(frames), 25)
    lines = [line for line in commands(ROOT / "README.md") if line.startswith("sibe ")]
    run = [line for line in lines if line != "sibe demo"]  # tests/watch plays it, which takes long
    assert len(run) >= 12 and len(run) == len(lines) - 1
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SSH_CONNECTION": ""}
    for line in [made_by("train"), *run]:
        words = [sys.executable, "-m", *shlex.split(small(line))]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
    for name in ("out.mp4", "tasks.png", "BANK", "report/report.html", "watch.html"):
        assert (tmp_path / name).exists(), name


@pytest.mark.parametrize("version", ["(3, 10, 9)", "(3, 13, 0)"])
def test_a_python_that_cannot_install_is_refused_at_once(tmp_path: Path, version: str) -> None:
    python = tmp_path / "python"
    pretend = f"import sys; sys.version_info = {version}; exec(sys.argv[1])"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}" "$2"\n')
    python.chmod(0o755)
    words = ["make", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}", "setup"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "Python 3.11 or 3.12 is needed" in done.stdout
    assert not (tmp_path / "venv").exists()


def made_by(target: str) -> str:
    """Return the sibe command of a target of the Makefile."""
    recipe = (ROOT / "Makefile").read_text().split(f"\n{target}: ")[1].split("\n\n")[0]
    found = re.search(r"\$\(BIN\)/(sibe .*)", recipe)
    assert found
    return found[1]
