"""Methods of other packages: the how-to's own code, installed and trained, and broken ones."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from sibe.catalogue import registry
from sibe.catalogue.registry import ENTRIES, find_method, method_names
from sibe.cli import main as cli
from sibe.errors import UserError
from sibe.logs.csv_log import read_csv
from sibe.methods.sibe import SIBE
from sibe.storage.run_files import RunFiles

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "add_method.md"
Install = Callable[..., Path]


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert found is not None
    return found[1]


def write_package(site: Path, name: str, code: str, points: dict[str, str]) -> None:
    """Lay a package out as pip would: its module, and the metadata that names its methods."""
    (site / f"{name}.py").write_text(code)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"{method} = {value}" for method, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[sibe.methods]", *lines, ""]))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package into a site folder of this test; return the folder."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    registry._warn_once.cache_clear()

    def installed(name: str, code: str, **points: str) -> Path:
        write_package(site, name, code, points)
        return site

    return installed


def train(site: Path, method: str, *args: str) -> subprocess.CompletedProcess[str]:
    """`sibe train` in a process that has the packages of ``site``."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "sibe", "train", "--method", method, *args],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def test_the_how_to_trains_and_its_run_knows_the_package(
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = tomllib.loads(block("toml"))["project"]
    site = install("surprise", block("python"), **project["entry-points"]["sibe.methods"])
    out = tmp_path / "run"
    flags = (
        "--preset debug --env-steps 600 --eval-every 600 --eval-episodes 1 --threads 1 --no-video"
    )
    done = train(site, "surprise", *flags.split(), "--surprise.intrinsic", "0.5", "--out", str(out))
    assert done.returncode == 0, done.stderr
    log = read_csv(out / "train.csv")
    assert log["updates"][-1] > 50
    assert log["bonus"][-1] == pytest.approx(0.5 * log["prediction_error"][-1], rel=1e-4)
    # Where the package is missing, the run names it.
    value = project["entry-points"]["sibe.methods"]["surprise"]
    origin = {"package": "surprise", "entry_point": value}
    assert RunFiles(out).read_meta()["plugin"] == origin
    monkeypatch.setattr(registry, "_plugins", dict)
    lines = (
        f"eval {out}",
        f"export {out} --out {tmp_path / 'export'}",
        f"embed {out} --out {tmp_path / 'grid.png'}",
        f"train --resume {out}",
    )
    for line in lines:
        assert stop(line) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert f"comes from the package surprise (entry point {value}), which is not" in error
    assert stop(f"report {out} --out {tmp_path / 'report'}") == 0  # needs its numbers alone
    capsys.readouterr()
    meta = RunFiles(out).read_meta()
    del meta["plugin"]  # a run of an older version
    (out / "meta.json").write_text(json.dumps(meta))
    assert stop(f"eval {out}") == 2
    assert "'surprise' of" in (error := capsys.readouterr().err) and "a plug-in that is n" in error
    assert "did you mean" not in error


def stop(line: str) -> int:
    """Return the exit code of `sibe LINE` in this process."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(line.split())
    return int(stopped.value.code or 0)


def test_a_plug_in_is_known_by_name_without_being_imported(install: Install) -> None:
    install("lazy", "raise RuntimeError('imported')", lazy="lazy:ENTRY")
    assert method_names() == [*ENTRIES, "lazy"]
    with pytest.raises(UserError, match=r"'laz'; did you mean lazy\?.*known: sibe, db.*lazy"):
        find_method("laz")


def test_an_entry_may_come_from_a_function(install: Install) -> None:
    code = (
        "from sibe.catalogue.registry import METHODS\n"
        "from sibe.methods.registry import Entry  # where sibe 0.1 had it\n"
        "def entry(): return Entry(*METHODS['sibe'])\n"
    )
    install("by_function", code, copy="by_function:entry")
    assert find_method("copy").build is SIBE


GOOD = "from dataclasses import dataclass\nfrom sibe.methods.entry import Entry\n"
BROKEN = {
    "import": ("import no_such_package", "ModuleNotFoundError"),
    "attribute": ("x = 1", "AttributeError"),
    "type": ("ENTRY = 3", "is a int, not a sibe.methods.entry.Entry"),
    "raises": ("def ENTRY():\n    raise ValueError('two\\nlines')", "two lines"),
    "config": (f"{GOOD}ENTRY = Entry(dict, dict)", "not a dataclass"),
    "default": (
        f"{GOOD}@dataclass(frozen=True)\nclass C:\n    x: int\nENTRY = Entry(C, C)",
        "without valid defaults .*'x'",
    ),
    "frozen": (f"{GOOD}@dataclass\nclass C:\n    x: int = 1\nENTRY = Entry(C, C)", "not frozen"),
    "bonus": (
        f"{GOOD}@dataclass(frozen=True)\nclass C:\n    x: int = 1\nENTRY = Entry(C, C)",
        "'intrinsic'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plug_in_is_one_line_and_harms_no_other(case: str, install: Install) -> None:
    code, message = BROKEN[case]
    install(f"broken_{case}", code, broken=f"broken_{case}:ENTRY")
    assert find_method("sibe").build is SIBE
    with pytest.raises(UserError, match=message) as caught:
        find_method("broken")
    line = str(caught.value)
    assert len(line.splitlines()) == 1 and f"broken_{case}" in line and "'broken'" in line


def test_a_name_that_cannot_be_a_flag_is_refused(install: Install) -> None:
    install("odd", "ENTRY = None", **{"a/b": "odd:ENTRY"})
    with pytest.raises(UserError, match="other characters"):
        find_method("a/b")


def test_a_name_of_the_configuration_is_refused(install: Install) -> None:
    install("odd", "ENTRY = None", sac="odd:ENTRY")
    with pytest.raises(UserError, match="part of the configuration"):
        find_method("sac")


def test_a_metric_that_is_there_already_is_refused(install: Install, tmp_path: Path) -> None:
    code = block("python").replace('"prediction_error"', '"q"').replace('"bonus"', '"episode"')
    site = install("surprise", code, surprise="surprise:ENTRY")
    done = train(site, "surprise", "--preset", "debug", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "(episode, q)" in line


def test_a_built_in_name_cannot_be_taken(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("thief", "ENTRY = None", sibe="thief:ENTRY")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert find_method("sibe").build is SIBE
    (record,) = caplog.records
    assert "thief" in record.getMessage() and "'sibe'" in record.getMessage()
    assert method_names() == [*ENTRIES]


def test_two_packages_with_one_name_are_refused(install: Install) -> None:
    install("first", "ENTRY = None", twin="first:ENTRY")
    install("second", "ENTRY = None", twin="second:ENTRY")
    with pytest.raises(UserError, match="first and second"):
        find_method("twin")


def test_the_command_line_says_it_in_one_line(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = install("wreck", "import no_such_package", wreck="wreck:ENTRY", sibe="wreck:ENTRY")
    out = str(tmp_path / "run")
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "--method", "wreck", "--out", out])
    error = capsys.readouterr().err.strip()
    assert stop.value.code == 2 and len(error.splitlines()) == 1 and "no_such_package" in error

    done = train(site, "sibe", "--seed", "-1", "--out", out)
    warning, error = done.stderr.strip().splitlines()
    assert "wreck" in warning and "--seed" in error
