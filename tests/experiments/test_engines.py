"""Engines: skip, resume, retry, report, stop. A stub stands in for a run where learning is not
the point; the last tests run real ones from the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from run_records import without_wall_clock

from sibe.errors import InUseError, UserError
from sibe.experiments import job as jobs_module
from sibe.experiments import worker
from sibe.experiments.engine import Ended, drive, is_done, stop_on_signals
from sibe.experiments.job import Job, run_to_end
from sibe.experiments.local_engine import LocalEngine, threads_per_job
from sibe.experiments.plan import as_stored, build_config
from sibe.experiments.request import Overrides
from sibe.experiments.status import is_locked
from sibe.experiments.suites import SUITES
from sibe.storage import checkpoint
from sibe.storage.run_directory import RunDirectory
from sibe.training.run import train

CSV_FILES = ("train.csv", "eval.csv", "eval_episodes.csv")


def make_job(root: Path, name: str = "a") -> Job:
    config = {"schedule": {"env_steps": 100}, "threads": 3, "device": "cpu"}
    return Job(name, root / name / "seed1", root, config, ("sibe", "suite", "run"))


def finish(job: Job, env_step: int = 100) -> None:
    checkpoint.save(job.path / "checkpoint", env_step, {})


class Scripted:
    """An engine whose jobs end as told: a list of errors per job, and where they get to."""

    taken = "started"

    def __init__(self, script: dict[str, list[tuple[int, str | None]]], capacity: int = 2) -> None:
        self.script, self.capacity = script, capacity
        self.running: list[Job] = []
        self.started: list[str] = []
        self.most = 0
        self.stopped = False

    def start(self, job: Job) -> None:
        self.running.append(job)
        self.started.append(job.name)
        self.most = max(self.most, len(self.running))

    def wait(self, seconds: float) -> list[Ended]:
        job = self.running.pop(0)
        env_step, error = self.script[job.name].pop(0)
        if env_step < 0:
            raise KeyboardInterrupt
        if env_step:
            finish(job, env_step)
        return [Ended(job, error)]

    def stop(self) -> None:
        self.stopped = True


# the loop --------------------------------------------------------------------------------------


def test_finished_runs_are_skipped_and_the_others_done(tmp_path: Path) -> None:
    jobs = [make_job(tmp_path, name) for name in "abcd"]
    finish(jobs[1])
    engine = Scripted({name: [(100, None)] for name in "acd"})
    said: list[str] = []
    assert drive(jobs, engine, retries=0, say=said.append) == {}
    assert engine.started == ["a", "c", "d"] and engine.most == 2 and engine.stopped
    assert said[0] == "1 of 4 runs is finished already" and said[-1] == "d: done (4 of 4)"


def test_a_failing_run_is_retried_then_reported_and_stops_no_other(tmp_path: Path) -> None:
    jobs = [make_job(tmp_path, name) for name in "ab"]
    engine = Scripted({"a": [(0, "boom")] * 3, "b": [(100, None)]}, capacity=1)
    said: list[str] = []
    assert drive(jobs, engine, retries=2, say=said.append) == {"a": "boom"}
    assert engine.started == ["a", "b", "a", "a"], "the others first, then again"
    assert jobs[0].failed.read_text() == "boom\n" and not jobs[1].failed.exists()
    assert any("FAILED, boom" in line for line in said)

    engine = Scripted({"a": [(100, None)]})
    assert drive(jobs, engine, retries=0, say=said.append) == {}
    assert not jobs[0].failed.exists(), "the note goes when the run is tried again"


def test_failures_count_only_while_a_run_gets_no_further(tmp_path: Path) -> None:
    lost = [(step, "lost") for step in (10, 20, 30, 40)]
    engine = Scripted({"a": [*lost, (0, "lost"), (100, None)]})
    assert drive([make_job(tmp_path)], engine, retries=1, say=lambda text: None) == {}
    engine = Scripted({"b": [(10, "lost"), (0, "lost"), (0, "lost"), (0, "lost")]})
    failed = drive([make_job(tmp_path, "b")], engine, retries=2, say=lambda text: None)
    assert failed == {"b": "lost"} and len(engine.started) == 4


def test_an_end_that_cannot_be_seen_here_is_a_failure(tmp_path: Path) -> None:
    engine = Scripted({"a": [(0, None)]})
    failed = drive([make_job(tmp_path)], engine, retries=0, say=lambda text: None)
    assert "--root must be shared" in failed["a"]


def test_the_engine_is_stopped_by_ctrl_c(tmp_path: Path) -> None:
    engine = Scripted({"a": [(-1, None)]})
    with pytest.raises(KeyboardInterrupt):
        drive([make_job(tmp_path)], engine, retries=0, say=lambda text: None)
    assert engine.stopped


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_being_told_to_end_is_a_ctrl_c(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), stop_on_signals():
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert signal.getsignal(number) is before


# processes of this machine ---------------------------------------------------------------------


def stub(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let a job's process run ``code``; request is what the worker would get."""
    head = "import json, os, signal, sys, time\nrequest = json.load(sys.stdin)\n"
    monkeypatch.setattr(jobs_module, "WORKER", ("-c", head + textwrap.dedent(code)))


def wait_for(engine: LocalEngine, count: int) -> list[Ended]:
    ended: list[Ended] = []
    while len(ended) < count:
        ended += engine.wait(1.0)
    return ended


def test_a_process_gets_its_request_threads_and_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(
        monkeypatch,
        """
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
        print(request["path"], *(os.environ.get(name) for name in names))
        print(request["parent"] == os.getppid(), os.getsid(0) == os.getpid())
        """,
    )
    jobs = [make_job(tmp_path, name) for name in "ab"]
    for job in jobs:
        job.config["device"] = "cuda"
    engine = LocalEngine(2, gpus=("4", "7"))
    for job in jobs:
        engine.start(job)
    assert [error for _, error in wait_for(engine, 2)] == [None, None]
    for job, gpu in zip(jobs, "47", strict=True):
        assert job.log.read_text().splitlines()[1:] == [f"{job.path} 3 3 {gpu}", "True True"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit('sibe: the disk is full')", "exit code 1: the disk is full"),
        ("print('x' * 5000, file=sys.stderr); sys.exit(2)", "exit code 2: " + "x" * 300),
        ("raise ValueError('no such thing')", "exit code 1: ValueError: no such thing"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL (out of memory?)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
    ],
)
def test_the_reason_of_a_bad_end(
    code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(monkeypatch, code)
    engine = LocalEngine(1)
    engine.start(make_job(tmp_path))
    assert [error for _, error in wait_for(engine, 1)] == [reason]
    assert run_to_end(make_job(tmp_path, "b")) == reason, "Ray's task says the same"


def test_stop_ends_all_processes_also_one_that_will_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(
        monkeypatch,
        """
        if request["path"].endswith("b/seed1"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.getpid(), flush=True)
        time.sleep(60)
        """,
    )
    monkeypatch.setattr(jobs_module, "_GRACE", 0.5)
    jobs = [make_job(tmp_path, name) for name in "ab"]
    engine = LocalEngine(2)
    for job in jobs:
        engine.start(job)
    while any(len(job.log.read_text().splitlines()) < 2 for job in jobs):
        time.sleep(0.02)
    pids = [int(job.log.read_text().splitlines()[1]) for job in jobs]
    engine.stop()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_root_that_is_not_there_is_told_from_a_failure_of_the_run(tmp_path: Path) -> None:
    missing = Job("a", tmp_path / "no/a/seed1", tmp_path / "no", {"threads": 1}, ())
    assert "must be on a file system that all machines share" in str(run_to_end(missing))
    assert not (tmp_path / "no").exists()


def test_a_job_that_cannot_be_started_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(monkeypatch, "")
    (tmp_path / "a").write_text("a file where a folder should be")
    engine = LocalEngine(2)
    for name in "ab":
        engine.start(make_job(tmp_path, name))
    errors = {job.name: error for job, error in wait_for(engine, 2)}
    assert errors["b"] is None and "File exists" in str(errors["a"])


def test_cores_are_divided_among_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(7)))
    assert [threads_per_job(n) for n in (1, 2, 3, 7, 100)] == [7, 3, 2, 1, 1]
    with pytest.raises(UserError, match="--jobs"):
        LocalEngine(0)


# the worker ------------------------------------------------------------------------------------


def test_a_run_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """SIGKILL, so that nobody has time to clean up."""
    child = (
        "import os, sys, time; from sibe.experiments.worker import end_with_parent;"
        "end_with_parent(int(sys.argv[1])); print(os.getpid(), flush=True); time.sleep(60)"
    )
    parent = (
        "import os, subprocess, sys;"
        f"subprocess.run([sys.executable, '-c', {child!r}, str(os.getpid())])"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    os.kill(pid, 0)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            break  # dead; who adopted it has not looked yet
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{pid}").exists()
    process.stdout.close()
    wrong = [sys.executable, "-c", child, "1"]
    late = subprocess.run(wrong, capture_output=True, text=True)
    assert late.returncode == 1 and "has ended" in late.stderr


def test_a_worker_waits_for_a_lock_that_is_about_to_be_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = build_config(SUITES["smoke"], SUITES["smoke"].runs()[0], Overrides())
    held = RunDirectory.create_or_open(tmp_path / "run", {}, {})
    trained: list[Path] = []

    def take(config: object, path: Path) -> None:
        with RunDirectory.create_or_open(path, {}, {}):
            trained.append(path)

    monkeypatch.setattr("sibe.training.run.train", take)
    with pytest.raises(InUseError, match="in use by another process"):
        worker.train_when_free(config, tmp_path / "run", patience=0.0)
    monkeypatch.setattr(time, "sleep", lambda seconds: held.close())
    worker.train_when_free(config, tmp_path / "run", patience=60.0)
    assert trained == [tmp_path / "run"]


# real runs -------------------------------------------------------------------------------------


def test_interrupted_sabotaged_and_finished_from_the_command_line(tmp_path: Path) -> None:
    root = tmp_path / "root"
    slice_ = ["--methods", "none", "--seeds", "1", "--jobs", "2", "--retries", "0"]
    slice_ += ["--env-steps", "4000"]  # long enough to be caught in the middle
    command = [sys.executable, "-m", "sibe", "suite", "run", "smoke", *slice_, "--root", str(root)]
    clean, noise = (root / f"cartpole_swingup-{b}" / "none" / "seed1" for b in ("clean", "noise"))
    noise.mkdir(parents=True)
    (noise / "thesis.txt").write_text("not a run")

    first = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell have inherited a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not (clean / "checkpoint" / "checkpoint_000001000.pt").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130 and "Traceback" not in err
    assert err.endswith("sibe: stopped; the same command continues\n")
    assert not is_locked(clean)

    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 1, second.stderr
    assert "clean/none/seed1: done (1 of 2)" in second.stdout
    assert second.stderr.startswith("failed: cartpole_swingup-noise/none/seed1: exit code 2")
    assert "thesis.txt" in second.stderr and (noise / "thesis.txt").read_text() == "not a run"
    assert "thesis.txt" in noise.with_name("seed1.failed").read_text()
    assert "continuing at env_step 1000" in clean.with_name("seed1.log").read_text()

    config = build_config(SUITES["smoke"], SUITES["smoke"].runs()[1], Overrides(env_steps=4000))
    assert is_done(Job("", clean, root, as_stored(config), ()))
    whole = train(config, tmp_path / "whole")
    for name in CSV_FILES:
        assert without_wall_clock(clean / name) == without_wall_clock(whole / name)
