"""This checkout against an older one, measured in turns: whole runs, updates, environment steps.

    git clone . OLD && cd OLD && git checkout cd6df3f && make setup
    .venv/bin/python benchmarks/compare_commits.py OLD --out pairs.json     # nothing else running

``run``: seconds per agent step of a whole run with noise and one thread (evaluation, logs and
checkpoints shared out), the older commit with its own preset and with today's image size and
strides; this one also with ``--encoder.autocast``. ``run2``: the same with two threads. ``update``:
seconds per update of the `cpu` preset with one thread, in turns with matrix products. ``paper``:
seconds per update of the `paper` preset, two threads. ``step``: seconds per environment step.
``two``: a run with two threads against two runs with one thread each, side by side.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
OLD, OLD_84, NEW, NEW_HALF = "old", "old, 84x84", "new", "new, bfloat16"


def compute_as_a_run_does(threads: int) -> None:
    """Set up this process; the older commit has other names for it."""
    import torch

    from sibe.training.allocation import keep_memory

    keep_memory()
    try:
        from sibe.training.determinism import compute_with
    except ImportError:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(True, warn_only=True)
    else:
        compute_with(threads)


def run_parts(variant: str, threads: int) -> dict[str, float]:
    """Return the seconds per agent step of a whole run by part."""
    from sibe.bench.training_work import measure_run
    from sibe.bench.workloads import bench_config

    compute_as_a_run_does(threads)
    config: Any = replace(bench_config("cpu"), threads=threads, device="cpu")
    if variant == OLD_84:
        encoder = replace(config.encoder, strides=(2, 2, 2, 1))
        config = replace(config, env=replace(config.env, size=84), encoder=encoder)
    if variant == NEW_HALF:
        config = replace(config, encoder=replace(config.encoder, autocast=True))
    gc.collect()
    gc.freeze()
    return {part: round(seconds, 6) for part, seconds in measure_run(config, 2).items()}


def paper_update(threads: int) -> float:
    """Return the seconds per update of the `paper` preset, the median of six."""
    from sibe.bench import workloads

    compute_as_a_run_does(threads)
    config = workloads.bench_config("paper")
    agent, chunk = workloads.make_agent(config), workloads._random_chunk(config, config.sac.batch)
    gc.collect()
    gc.freeze()
    return _median_time(lambda: agent.update(chunk), 6, 1)


def cpu_update(threads: int) -> dict[str, float]:
    """Return the seconds per update of the `cpu` preset, the median of 200, and the rate of
    matrix products meanwhile, by which its arithmetic limit is measured.
    """
    import torch

    from sibe.bench import workloads
    from sibe.bench.learner import update_flops

    compute_as_a_run_does(threads)
    config = replace(workloads.bench_config("cpu", "sibe"), threads=threads, device="cpu")
    update = workloads.our_update(config)
    matrices = [torch.randn(n, n) for n in (512, 1024, 2048)]
    gc.collect()
    gc.freeze()
    _median_time(update, 1, 20)
    seconds, flops = [], 0.0
    for _ in range(10):
        seconds += [_median_time(update, 1, 1) for _ in range(20)]
        for matrix in matrices:
            took = min(_median_time(lambda m=matrix: m @ m, 1, 1) for _ in range(3))
            flops = max(flops, 2 * len(matrix) ** 3 / took)
    share = update_flops(config) / flops / statistics.median(seconds)
    return {"seconds": statistics.median(seconds), "flops": flops, "share": share}


def env_step(background: str) -> float:
    """Return the seconds per agent step of the environment alone, the median of five blocks."""
    import numpy as np

    from sibe import make_env

    env: Any = make_env("cartpole_swingup", background, size=84, stack=1)
    env.reset(seed=0)
    actions = iter(np.random.default_rng(0).uniform(-1, 1, (1000, 1)))
    for _ in range(30):
        env.step(next(actions))
    gc.collect()
    gc.freeze()
    return _median_time(lambda: env.step(next(actions)), 5, 40)


def _median_time(work: Any, blocks: int, times: int) -> float:
    found = []
    for _ in range(blocks):
        begun = time.perf_counter()
        for _ in range(times):
            work()
        found.append((time.perf_counter() - begun) / times)
    return statistics.median(found)


MEASURES = {"run": run_parts, "update": cpu_update, "paper": paper_update, "step": env_step}


def start(checkout: Path, threads: int, measure: str, *arguments: Any) -> subprocess.Popen[str]:
    """Measure in a process of its own, with the environment of ``checkout``."""
    command = [str(checkout / ".venv/bin/python"), __file__, "--measure", measure]
    command += [json.dumps(argument) for argument in arguments]
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    return subprocess.Popen(command, cwd=checkout, env=env, stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> Any:
    """Return what ``process`` has measured."""
    out, _ = process.communicate()
    if process.returncode:
        sys.exit(f"a measurement failed: {process.args}")
    return json.loads(out.strip().splitlines()[-1])


def both(old: Path, turn: int, threads: int, measure: str, *arguments: Any) -> dict[str, Any]:
    """Measure the older commit and this one, in an order that changes with each turn."""
    order = [(old, OLD), (HERE, NEW)][:: 1 - 2 * (turn % 2)]
    return {name: result(start(at, threads, measure, *arguments)) for at, name in order}


def runs(old: Path, turn: int, threads: int) -> dict[str, Any]:
    """Measure whole runs."""
    order = [(old, OLD), (old, OLD_84), (HERE, NEW), (HERE, NEW_HALF)][:: 1 - 2 * (turn % 2)]
    return {name: result(start(at, threads, "run", name, threads)) for at, name in order}


def steps(old: Path, turn: int) -> dict[str, float]:
    """Measure environment steps."""
    found = {}
    for background in ("noise", "clean"):
        for name, seconds in both(old, turn, 1, "step", background).items():
            found[f"{name}, {background}"] = seconds
    return found


def two_runs() -> dict[str, Any]:
    """Measure a run with two threads, then two runs with one thread each."""
    alone = sum(result(start(HERE, 2, "run", NEW, 2)).values())
    pair = [start(HERE, 1, "run", NEW, 1) for _ in range(2)]
    return {
        "two threads": alone,
        "one thread each": [sum(result(process).values()) for process in pair],
    }


SECTIONS: dict[str, Callable[[Path, int], Any]] = {
    "run": lambda old, turn: runs(old, turn, 1),
    "run2": lambda old, turn: runs(old, turn, 2),
    "update": lambda old, turn: result(start(HERE, 1, "update", 1)),
    "paper": lambda old, turn: both(old, turn, 2, "paper", 2),
    "step": steps,
    "two": lambda old, turn: two_runs(),
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        name, *rest = sys.argv[2:]
        print(json.dumps(MEASURES[name](*map(json.loads, rest))))
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="a checkout of the older commit, set up")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("pairs.json"))
    given = parser.parse_args()
    found: dict[str, list[Any]] = {section: [] for section in given.only}
    for turn in range(given.rounds):
        for section in given.only:
            found[section].append(SECTIONS[section](given.old.resolve(), turn))
            given.out.write_text(json.dumps(found, indent=1))
