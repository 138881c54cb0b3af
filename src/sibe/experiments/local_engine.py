"""The local engine: processes of this machine, so many at a time."""

from __future__ import annotations

import os
import subprocess
import time

from sibe.errors import UserError
from sibe.experiments import job as process
from sibe.experiments.engine import Ended
from sibe.experiments.job import Job
from sibe.training.threads import environment_threads

_POLL = 0.1


def threads_per_job(jobs: int) -> int:
    """Return what OMP_NUM_THREADS says, else each run's share of this machine's cores."""
    return environment_threads() or max(1, len(os.sched_getaffinity(0)) // jobs)


def visible_gpus() -> tuple[str, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves us, as it names them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named:
        return tuple(name for name in named.split(",") if name)
    return tuple(str(index) for index in range(torch.cuda.device_count()))


class LocalEngine:
    """Runs ``jobs`` processes at a time; several GPUs are dealt out in turn."""

    taken = "started"

    def __init__(self, jobs: int, gpus: tuple[str, ...] = ()) -> None:
        if jobs < 1:
            raise UserError(f"--jobs must be at least 1, not {jobs}")
        self.capacity = jobs
        self._gpus = gpus
        self._running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}
        self._refused: list[Ended] = []

    def start(self, job: Job) -> None:
        """Start the job's process in the first free place."""
        slot = next(slot for slot in range(self.capacity) if slot not in self._running)
        env = {}
        if len(self._gpus) > 1 and job.config["device"] == "cuda":
            env["CUDA_VISIBLE_DEVICES"] = self._gpus[slot % len(self._gpus)]
        try:
            self._running[slot] = (job, process.start(job, env))
        except (UserError, OSError) as error:  # one run's trouble is not the others'
            self._refused.append(Ended(job, str(error)))

    def wait(self, seconds: float) -> list[Ended]:
        """Return the jobs whose processes have ended."""
        if self._refused:
            refused, self._refused = self._refused, []
            return refused
        deadline = time.monotonic() + seconds
        while True:
            ended = [slot for slot, (_, child) in self._running.items() if child.poll() is not None]
            if ended or time.monotonic() >= deadline:
                break
            time.sleep(_POLL)
        finished = [self._running.pop(slot) for slot in ended]
        return [Ended(job, process.why_it_ended(job, child.returncode)) for job, child in finished]

    def stop(self) -> None:
        """End all processes."""
        process.end([child for _, child in self._running.values()])
        self._running.clear()
