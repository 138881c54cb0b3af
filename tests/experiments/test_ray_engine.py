"""The Ray engine: same results as the local one, also when interrupted and when a node dies.

The marked tests start Ray's own processes, on the loopback interface, with a home and a token of
their own. Drivers are processes of the command line, as users have them.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from run_records import without_wall_clock

from sibe.cli import main as cli
from sibe.errors import UserError
from sibe.experiments import ray_engine
from sibe.experiments.status import is_locked

SMOKE = [sys.executable, "-m", "sibe", "suite", "run", "smoke"]
CHECKPOINT = "checkpoint/checkpoint_000001000.pt"


def assert_same_csvs(root: Path, reference: Path, runs: int) -> None:
    files = sorted(path.relative_to(root) for path in root.rglob("*.csv"))
    assert len(files) == 3 * runs
    for file in files:
        assert without_wall_clock(root / file) == without_wall_clock(reference / file), file


# bad input, without a cluster ------------------------------------------------------------------


def test_ray_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit) as stop:
        cli.main(["suite", "run", "smoke", "--engine", "ray", "--root", str(tmp_path / "root")])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and err.count("\n") == 1 and "pip install 'sibe[ray]'" in err


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_nobody_at_the_address(closed_port: int) -> None:
    began = time.monotonic()
    with pytest.raises(UserError, match=r"no Ray cluster answers at 127\.0\.0\.1.*ray start"):
        ray_engine._knock(f"127.0.0.1:{closed_port}")
    assert time.monotonic() - began < 2 * ray_engine._KNOCK


@pytest.mark.parametrize("address", ["here", "here:", ":1", "host:0", "host:99999", "host:x"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(UserError, match="is not host:port"):
        ray_engine._knock(address)


def test_a_client_address_is_refused() -> None:
    with pytest.raises(UserError, match="ray job submit"):
        ray_engine.connect("ray://head:10001")


@pytest.mark.parametrize(
    "flags", [{"jobs": 0}, {"cpus": 0}, {"gpus": -1}, {"cpus": math.nan}, {"gpus": math.inf}]
)
def test_bad_numbers_are_refused_before_anything_is_started(flags: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="must be"):
        ray_engine.RayEngine("127.0.0.1:1", **flags)


# with Ray --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home folder for all processes, so that what Ray leaves in one is seen and thrown away."""
    path = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(path))
        for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            patch.delenv(name, raising=False)
        yield path


@pytest.fixture(scope="module")
def reference(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smoke suite by the local engine."""
    root = tmp_path_factory.mktemp("local")
    subprocess.run([*SMOKE, "--engine", "local", "--jobs", "2", "--root", str(root)], check=True)
    return root


def start(*flags: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*SMOKE, "--engine", "ray", *flags],
        stdout=pipe,
        stderr=pipe,
        text=True,
        # Tests that run in the background of a shell have inherited a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for_checkpoint(root: Path, driver: subprocess.Popen[str]) -> None:
    while not list(root.glob(f"*/*/*/{CHECKPOINT}")):
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.05)


def listening(driver: subprocess.Popen[str]) -> dict[str, set[str]]:
    """Addresses at which Ray's own processes, children of the driver, listen."""
    found: dict[str, set[str]] = {}
    for process in psutil.Process(driver.pid).children(recursive=True):
        for one in process.net_connections("inet"):
            if one.status == psutil.CONN_LISTEN:
                found.setdefault(process.name(), set()).add(one.laddr.ip.removeprefix("::ffff:"))
    return found


@pytest.mark.ray
def test_interrupted_and_finished_smoke_is_that_of_the_local_engine(
    reference: Path, home: Path, tmp_path: Path
) -> None:
    first = start("--root", str(tmp_path))
    wait_for_checkpoint(tmp_path, first)
    addresses = listening(first)
    assert {"gcs_server", "raylet"} <= addresses.keys()
    assert set.union(*addresses.values()) == {"127.0.0.1"}, addresses
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130, err
    assert err.endswith("sibe: stopped; the same command continues\n"), err
    runs = [path.parent for path in tmp_path.rglob("config.json")]
    assert runs and not any(is_locked(run) for run in runs)

    second = start("--root", str(tmp_path))
    out, err = second.communicate()
    assert second.returncode == 0, (out, err)
    assert_same_csvs(tmp_path, reference, runs=8)
    assert "continuing at env_step 1000" in "".join(p.read_text() for p in tmp_path.rglob("*.log"))
    assert not (home / ".ray").exists(), "a cluster of our own leaves nothing in the home folder"


@pytest.fixture
def cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head without CPUs and two nodes with one each, all on the loopback interface."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        assert cluster.address.startswith("127.0.0.1:")
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.mark.ray
def test_a_node_that_dies_in_mid_run_is_survived(
    reference: Path, cluster: Any, tmp_path: Path
) -> None:
    driver = start("--root", str(tmp_path), "--address", cluster.address)
    wait_for_checkpoint(tmp_path, driver)
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    out, err = driver.communicate()
    assert driver.returncode == 0, (out, err)
    assert "its worker or node was lost" in out and "done (8 of 8)" in out
    assert_same_csvs(tmp_path, reference, runs=8)

    too_much = start("--root", str(tmp_path), "--address", cluster.address, "--cpus-per-run", "99")
    _, err = too_much.communicate()
    assert too_much.returncode == 2 and "no node of the cluster has 99 CPUs" in err
    assert err.count("\n") == 1


@pytest.mark.ray
def test_something_else_at_the_address_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_engine, "_HELLO", 4.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UserError, match="Ray cluster") as refused:
            ray_engine._say_hello(address)
    assert "\n" not in str(refused.value)
