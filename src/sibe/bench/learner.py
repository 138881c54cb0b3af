"""Updates: against the reference, against the arithmetic, and against their own size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sibe.bench.arithmetic import update_macs
from sibe.bench.machine import multiply
from sibe.bench.plan import Bench
from sibe.bench.results import Goal, Row, Section, timed_row
from sibe.bench.sides import interleave, median_ratio
from sibe.bench.workloads import ACTION_DIM, bench_config, our_update, period, reference_update
from sibe.config.schema import RunConfig


def update_flops(config: RunConfig) -> float:
    """Return the floating-point operations of an update."""
    return 2 * sum(update_macs(config, ACTION_DIM).values())


def arithmetic_seconds(bench: Bench, config: RunConfig) -> float:
    """Return how long an update takes if it is nothing but its arithmetic at the best rate."""
    return update_flops(config) / bench.machine.matmul_flops


def update(bench: Bench) -> Section:
    """Time one update of each preset, with SIBE and without, on both sides, and its limit.

    The limit is measured in turns with the updates: what slows the machine down slows both.
    """
    rows, goals, matrices = [], [], {f"matrix {n}": n for n in bench.plan.matrices}
    for preset in bench.plan.presets:
        works = {}
        for method in ("sibe", "none"):
            config = bench_config(preset, method)
            units = period(config)
            for side, make in (("ours", our_update), ("reference", reference_update)):
                name = f"{method} {side}"
                works[name] = bench.side(side).prepare(name, make, config, units=units)
        for name, n in matrices.items():
            works[name] = bench.ours.prepare(name, multiply, n, units=2 * n**3)
        times = interleave(works, bench.plan.pairs, bench.plan.seconds)
        bench.refresh()
        per_flop = np.min([times[name] for name in matrices], axis=0)  # the fastest of each round
        for method in ("sibe", "none"):
            both = {side: times[f"{method} {side}"] for side in ("ours", "reference")}
            limits = (update_flops(bench_config(preset, method)) * per_flop).tolist()
            rows.append(timed_row(f"update, {preset}, {method}", {**both, "limit": limits}))
        goals += _update_goals(preset, rows[-2])
        if preset != "cpu":
            cost = median_ratio(times["sibe ours"], times["none ours"])
            goals.append(Goal(f"{preset}: update with SIBE over plain SAC", cost, 1.7, False))
        bench.forget()
    return Section(rows, goals)


def _update_goals(preset: str, sibe: Row) -> list[Goal]:
    assert sibe.ratio is not None and sibe.of_limit is not None
    bound = 2.0 if preset == "cpu" else 3.5
    goals = [
        Goal(f"{preset}: SIBE update, times faster than the reference", sibe.ratio, bound, True)
    ]
    name = f"{preset}: SIBE update, share of the arithmetic limit"
    goals.append(Goal(name, sibe.of_limit, 0.55 if preset == "cpu" else 0.75, True))
    return goals


def size(bench: Bench) -> Section:
    """Time the update of the first preset for many batch and image sizes, against arithmetic."""
    plan = bench.plan
    base = bench_config(plan.presets[0])
    by_batch = {f"B {b}": _with(base, batch=b) for b in plan.batches}
    by_side = {f"{s}×{s}": _with(base, batch=plan.side_batch, size=s) for s in plan.sides}
    rows, goals = [], []
    for what, configs in (("batch", by_batch), ("image", by_side)):
        times = interleave(
            {
                name: bench.ours.prepare(name, our_update, config, units=period(config))
                for name, config in configs.items()
            },
            plan.pairs,
            plan.seconds,
        )
        bench.refresh()
        limits = {name: arithmetic_seconds(bench, config) for name, config in configs.items()}
        for name, seconds in times.items():
            row = timed_row(f"update, {name}", {"ours": seconds}, limit=limits[name])
            rows.append(row)
        goals.append(_growth(what, times, limits))
        bench.forget()
    return Section(rows, goals)


def _with(config: RunConfig, *, batch: int, size: int | None = None) -> RunConfig:
    """Return the config in another size, with all parts in every update: half the time it takes."""
    env = replace(config.env, size=size or config.env.size)
    sac = replace(config.sac, batch=batch, actor_every=1, target_every=1)
    return replace(config, env=env, sac=sac)


def _growth(what: str, times: dict[str, list[float]], limits: dict[str, float]) -> Goal:
    """Return by how much time grows faster than arithmetic, from the smallest to the largest."""
    first, *_, last = times
    ratios = np.divide(times[last], times[first]) / (limits[last] / limits[first])
    name = f"{what} size: growth of time over growth of arithmetic, {first} to {last}"
    return Goal(name, float(np.median(ratios)), 1.05, False)
