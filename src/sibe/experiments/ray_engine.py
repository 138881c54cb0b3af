"""The Ray engine: one Ray task per run, on a cluster or on one that is started for the purpose.

The task starts the same process as the local engine does, in a directory that all machines see.
Ray's own retries are off: a task that is lost with its worker or node comes back as an error, the
engine's user hands the run over again, and another node continues it from its last checkpoint.
A cluster of our own listens on the loopback interface only and has a token of its own.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

from sibe.errors import UserError
from sibe.experiments.engine import Ended
from sibe.experiments.job import Job, run_to_end

_KNOCK = 3.0  # seconds for a connection to the head
_HELLO = 30.0  # seconds for a whole handshake with it, Ray's own start-up included
_CANCEL = 8.0  # seconds for canceled tasks to end their processes
_STORE = 80 * 1024**2  # bytes of shared memory: a job and its answer are small
_ALL = 1_000_000


def check_share(cpus: float, gpus: float) -> None:
    """Refuse what no run can be given of a node."""
    if not 0 < cpus < math.inf or not 0 <= gpus < math.inf:
        raise UserError(
            "--cpus-per-run must be above 0 and --gpus-per-run not negative, both finite, "
            f"not {cpus:g} and {gpus:g}"
        )


class RayEngine:
    """Hands runs to Ray.

    Args:
        address: "host:port" of a running cluster's head, "auto" for the one on this machine, or
            None to start one here.
        cpus: CPUs that a run reserves.
        gpus: GPUs that a run reserves; may be a fraction.
        jobs: most runs at a time; None for as many as there is room for.
    """

    taken = "submitted"

    def __init__(
        self, address: str | None, *, cpus: float = 1, gpus: float = 0, jobs: int | None = None
    ) -> None:
        if jobs is not None and jobs < 1:
            raise UserError(f"--jobs must be at least 1, not {jobs}")
        check_share(cpus, gpus)
        self.capacity = jobs or _ALL
        self._ray = connect(address)
        try:
            self._refuse_too_much(address, cpus, gpus)
        except BaseException:
            self._ray.shutdown()
            raise
        self._task = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(run_to_end)
        self._running: dict[Any, Job] = {}

    def _refuse_too_much(self, address: str | None, cpus: float, gpus: float) -> None:
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if any(has.get("CPU", 0) >= cpus and has.get("GPU", 0) >= gpus for has in nodes):
            return
        most = ", ".join(f"{max(has.get(k, 0) for has in nodes):g} {k}s" for k in ("CPU", "GPU"))
        where = "this machine" if address is None else "no node of the cluster"
        raise UserError(
            f"{where} has {'not ' if address is None else ''}{cpus:g} CPUs and {gpus:g} GPUs for "
            f"a run (at most {most}): lower --cpus-per-run or --gpus-per-run"
        )

    def start(self, job: Job) -> None:
        """Submit the job; Ray starts it when a node has room."""
        self._running[self._task.remote(job)] = job

    def wait(self, seconds: float) -> list[Ended]:
        """Return the jobs whose tasks have ended, or were lost."""
        refs = list(self._running)
        if not self._ray.wait(refs, num_returns=1, timeout=seconds)[0]:
            return []
        ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        return [Ended(self._running.pop(ref), self._answer(ref)) for ref in ready]

    def _answer(self, ref: Any) -> str | None:
        try:
            error: str | None = self._ray.get(ref)
            return error
        except self._ray.exceptions.RayTaskError as lost:
            return f"the task failed: {_last(str(lost))}"
        except self._ray.exceptions.RayError as lost:
            return f"its worker or node was lost ({type(lost).__name__})"

    def stop(self) -> None:
        """Cancel all tasks, let them end their processes, and leave the cluster."""
        with suppress(Exception):  # a cluster that is gone has ended them already
            for ref in self._running:
                self._ray.cancel(ref)
            refs = list(self._running)
            if refs:
                self._ray.wait(refs, num_returns=len(refs), timeout=_CANCEL)
        self._running.clear()
        self._ray.shutdown()


def connect(address: str | None) -> Any:
    """Return the module ray, connected."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        # Read when ray is imported; the name is historical: 0 keeps a cluster on 127.0.0.1.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        if "RAY_AUTH_MODE" not in os.environ:  # else Ray writes a token into the home folder
            os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    elif address.startswith("ray://"):
        raise UserError(
            "--address takes host:port of the cluster's head (or auto), on a machine of the "
            "cluster; from outside use: ray job submit -- sibe suite run …"
        )
    try:
        import ray
    except ImportError:
        raise UserError("--engine ray needs Ray: pip install 'sibe[ray]'") from None
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        cores = len(os.sched_getaffinity(0))
        ray.init(
            address="local",
            num_cpus=cores,
            include_dashboard=False,
            object_store_memory=_STORE,
            **quiet,
        )
        return ray
    _knock(address)
    _say_hello(address)
    ray.init(address=address, **quiet)
    return ray


def _knock(address: str) -> None:
    """Refuse an address at which nothing listens; Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"--address {address!r} is not host:port, nor auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address} ({error.strerror or error}): "
            "start it with `ray start --head`, or leave out --address for one on this machine"
        ) from None


def _say_hello(address: str) -> None:
    """Connect in a child first: where Ray cannot, it hangs or ends the whole process."""
    code = (
        "import sys, ray\n"
        "try:\n"
        "    ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')\n"
        "except Exception as error:\n"
        "    sys.exit(' '.join(str(error).split()))\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, address],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_HELLO,
        )
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{address} did not answer as a Ray cluster does within {_HELLO:g} s: "
            "check the address, and that both sides have the same version of Ray"
        ) from None
    if done.returncode:
        raise UserError(f"cannot connect to the Ray cluster at {address}: {_last(done.stderr)}")


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"
