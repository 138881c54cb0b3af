"""`sibe suite list | run | status`: grids of runs, on this machine or on a cluster."""

from __future__ import annotations

import os
import sys
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from sibe.cli.parsing import Group
from sibe.config.values import Count, Natural, configuration
from sibe.envs.tasks import VIDEOS
from sibe.errors import UserError
from sibe.experiments.request import Overrides, Slice, select
from sibe.experiments.suites import SUITES, Suite, SuiteRun, find_suite
from sibe.logs.amounts import count
from sibe.storage.atomic import make_folder
from sibe.training.interrupts import interruptible

if TYPE_CHECKING:
    from sibe.experiments.engine import Engine
    from sibe.experiments.job import Job
    from sibe.experiments.plan import PlannedRun

Part = Annotated[Slice, arg(name="")]
Changes = Annotated[Overrides, arg(name="")]


@configuration()
class ListSuites:
    """List the suites, or one suite in detail, with an estimate of the time."""

    name: Positional[str | None] = None
    """A suite (default: all of them)."""
    measure: bool = True
    """Time a few updates on this machine for the estimate."""
    jobs: Count = 1
    """Estimate for so many runs at a time, each as fast as one is now."""
    part: Part = field(default_factory=Slice)
    changes: Changes = field(default_factory=Overrides)

    def run(self) -> int:
        """Print the table."""
        from sibe.experiments.catalogue import describe_suite, describe_suites
        from sibe.experiments.estimate import SpeedMeter

        watch = SpeedMeter() if self.measure else None
        if self.name is not None:
            suite = find_suite(self.name)
            runs = select(suite, self.part)
            print(describe_suite(suite, runs, self.changes, watch, jobs=self.jobs))
        elif self.part != Slice():
            raise UserError("--tasks, --methods, --backgrounds and --seeds go with a suite's name")
        else:
            print(describe_suites(list(SUITES.values()), self.changes, watch, jobs=self.jobs))
        return 0


@configuration()
class RunSuite:
    """Run a suite, or a part of it; the same command again skips, resumes and retries."""

    name: Positional[str]
    """The suite; `sibe suite list` shows them."""
    root: Path | None = None
    """Where the runs go (default: runs/NAME)."""
    engine: Literal["local", "ray"] = "local"
    """Processes of this machine, or Ray tasks."""
    jobs: Count | None = None
    """Runs at a time (default: local 1, ray as many as fit)."""
    retries: Natural = 2
    """How often a run that fails without getting any further is tried again."""
    address: str | None = None
    """ray: host:port of a running cluster's head, or auto (default: start one here)."""
    cpus_per_run: float | None = None
    """ray: CPUs that a run reserves (default: its threads)."""
    gpus_per_run: float = 0.0
    """ray: GPUs that a run reserves; 0.5 puts two on one."""
    part: Part = field(default_factory=Slice)
    changes: Changes = field(default_factory=Overrides)

    def run(self) -> int:
        """Do the runs; 0 if all are finished, else 1."""
        from sibe.experiments.engine import drive, stop_on_signals
        from sibe.experiments.plan import plan

        suite = find_suite(self.name)
        root = suite_root(suite, self.root).absolute()
        runs = select(suite, self.part)
        planned = self._settled(plan(suite, runs, self._with_bank(runs), root))
        if self.changes.cameras is not None or self.changes.sensors is not None:
            _try_sensors(planned)
        with interruptible(lambda: "stopped; the same command continues"), stop_on_signals():
            make_root(root)
            engine = self._make_engine(planned)
            jobs = [_job(one, root) for one in planned]
            print(f"{count(len(jobs), 'run')} of {suite.name} -> {root}", flush=True)
            failed = drive(jobs, engine, retries=self.retries, say=_say)
        for name, error in failed.items():
            print(f"failed: {name}: {error}", file=sys.stderr)
        return 1 if failed else 0

    def _with_bank(self, runs: list[SuiteRun]) -> Overrides:
        """Open the clip bank once before 150 runs do, and name it as every folder can find it."""
        from sibe.envs.backgrounds.clips import ClipBank

        if self.changes.clips is None:
            return self.changes
        if not any(run.background in VIDEOS for run in runs):
            raise UserError("--clips has no effect: none of these runs has a video background")
        bank = Path(self.changes.clips).absolute()
        ClipBank.open(bank)
        return replace(self.changes, clips=str(bank))

    def _settled(self, planned: list[PlannedRun]) -> list[PlannedRun]:
        """Decide what the machine decides: threads and device."""
        from sibe.experiments.plan import settle

        if self.engine == "ray":
            from sibe.experiments.ray_engine import check_share

            cpus = 1 if self.cpus_per_run is None else self.cpus_per_run
            check_share(cpus, self.gpus_per_run)
            threads = max(1, int(cpus))
            device = "cuda" if self.gpus_per_run > 0 else "cpu"
        else:
            from sibe.experiments.local_engine import threads_per_job
            from sibe.training.run import choose_device

            if self.address or self.cpus_per_run is not None or self.gpus_per_run:
                raise UserError("--address, --cpus-per-run and --gpus-per-run go with --engine ray")
            threads = threads_per_job(self.jobs or 1)
            device = str(choose_device(self.changes.device or "auto"))
        return [settle(one, threads=threads, device=device, given=self.changes) for one in planned]

    def _make_engine(self, planned: list[PlannedRun]) -> Engine:
        if self.engine == "local":
            from sibe.experiments.local_engine import LocalEngine, visible_gpus

            return LocalEngine(self.jobs or 1, visible_gpus())
        from sibe.experiments.ray_engine import RayEngine

        cpus = self.cpus_per_run
        if cpus is None:
            cpus = max(one.config.threads for one in planned)
        return RayEngine(self.address, cpus=cpus, gpus=self.gpus_per_run, jobs=self.jobs)


@configuration()
class SuiteStatus:
    """Show how far the runs of a suite are, from their files."""

    name: Positional[str]
    """The suite."""
    root: Path | None = None
    """Where the runs are (default: runs/NAME)."""
    part: Part = field(default_factory=Slice)
    changes: Changes = field(default_factory=Overrides)

    def run(self) -> int:
        """Print a line per run, and the sum."""
        from sibe.experiments.plan import missing_methods, plan
        from sibe.experiments.status import describe, run_status

        suite = find_suite(self.name)
        root = suite_root(suite, self.root)
        runs = select(suite, self.part)
        if not root.is_dir():
            raise UserError(f"there is no folder {root}: give the --root of `sibe suite run`")
        missing = missing_methods(runs)
        known = [run for run in runs if run.variant.method not in missing]
        if known:
            print(describe([run_status(one) for one in plan(suite, known, self.changes, root)]))
        if missing:
            left = len(runs) - len(known)
            need = f"{count(left, 'run')} {'needs' if left == 1 else 'need'}"
            print(f"{need} methods that this version lacks: {', '.join(missing)}")
        return 0


SUITE = Group(
    "Grids of runs: the paper's, its ablations, and small ones.",
    {"list": ListSuites, "run": RunSuite, "status": SuiteStatus},
)


def suite_root(suite: Suite, root: Path | None) -> Path:
    """Return where the suite's runs are."""
    return Path("runs") / suite.name if root is None else root


def make_root(root: Path) -> None:
    """Make the folder, and see that it can be written in, before anything is started."""
    try:
        make_folder(root)
        if not os.access(root, os.W_OK | os.X_OK):
            raise PermissionError(13, "no permission to write")
    except OSError as error:
        raise UserError(f"cannot use {root} ({error.strerror}): choose another --root") from error


def _try_sensors(planned: list[PlannedRun]) -> None:
    """Make one environment of each task: not every task has every camera, or a state."""
    from sibe.training.environment import make_training_env

    for env in {one.run.task: one.config.env for one in planned}.values():
        make_training_env(env).close()


def _job(planned: PlannedRun, root: Path) -> Job:
    from sibe.experiments.job import Job
    from sibe.experiments.plan import as_stored

    command = (Path(sys.argv[0]).name, *sys.argv[1:])
    config = as_stored(planned.config)
    return Job(str(planned.run.directory), planned.path, root, config, command)


def _say(text: str) -> None:
    print(text, flush=True)
