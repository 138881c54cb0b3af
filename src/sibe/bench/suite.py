"""All benchmarks by name, and how they are run one after the other into one result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psutil

from sibe.bench.plan import QUICK, Bench, Plan
from sibe.bench.results import Section
from sibe.bench.sides import Side
from sibe.bench.workloads import ACTION_DIM, bench_config
from sibe.errors import UserError, nearest
from sibe.replay.replay import Replay
from sibe.training.threads import choose_threads

NAMES = (
    "update",
    "sampling",
    "memory",
    "environment",
    "training",
    "checkpoint",
    "size",
    "processes",
)
_UPDATES = 2_000_000_000  # bytes: activations of the largest batch, agents, the reference replay


def run_bench(
    only: Sequence[str] = (),
    *,
    quick: bool = False,
    threads: int = 0,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the benchmarks called ``only`` (default: all) and return the result as plain values.

    Args:
        only: names from ``NAMES``.
        quick: tiny sizes, for tests; the numbers mean nothing.
        threads: for learning; 0 for OMP_NUM_THREADS, or all cores if it is unset.
        say: is told what is being measured.
    """
    chosen = _choose(only)
    plan = QUICK if quick else Plan()
    threads = choose_threads(threads).number
    _check_memory(plan)
    sections: dict[str, Any] = {}
    with Side(threads=threads) as ours, Side(threads=threads, reference=True) as reference:
        bench = Bench.start(plan, ours, reference)
        for name in chosen:
            say(f"measuring {name} …")
            sections[name] = _benchmarks()[name](bench).to_json()
    return {"quick": quick, "machine": _machine(bench), "sections": sections}


def _choose(only: Sequence[str]) -> list[str]:
    for name in only:
        if name not in NAMES:
            raise UserError(
                f"no benchmark {name!r}{nearest(name, NAMES)} (there are {', '.join(NAMES)})"
            )
    return [name for name in NAMES if not only or name in only]


def _benchmarks() -> dict[str, Callable[[Bench], Section]]:
    from sibe.bench import data, learner, running

    return {
        "update": learner.update,
        "sampling": data.sampling,
        "memory": data.memory,
        "environment": running.environment,
        "training": running.training,
        "checkpoint": data.checkpoint,
        "size": learner.size,
        "processes": running.processes,
    }


def _check_memory(plan: Plan) -> None:
    """Refuse now what would end in an out-of-memory kill after minutes of measuring."""
    config = bench_config(plan.presets[0])
    frame = (config.env.size, config.env.size, 3)
    replays = Replay.nbytes_for(sum(plan.transitions), frame, ACTION_DIM, config.sac.shift)
    need = replays + _UPDATES
    free = psutil.virtual_memory().available
    if need > free:
        raise UserError(
            f"the benchmarks need {need / 1e9:.1f} GB of RAM and {free / 1e9:.1f} GB are free: "
            "close something, or use --quick"
        )


def _machine(bench: Bench) -> dict[str, Any]:
    from sibe.training.meta import collect_meta

    meta = collect_meta()
    for name in ("command", "torch_threads", "device"):
        meta.pop(name)
    return {**meta, **bench.machine._asdict()}
