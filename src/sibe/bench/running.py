"""Running: environment steps, whole training steps, a whole run, and two runs side by side."""

from __future__ import annotations

from collections.abc import Callable

from sibe.bench.baseline import Baseline, baseline
from sibe.bench.plan import Bench
from sibe.bench.reference.envpool import has_envpool
from sibe.bench.results import Goal, Row, Section, timed_row
from sibe.bench.sides import Side, Work, interleave, median_ratio
from sibe.bench.stopwatch import UPDATE_PARTS
from sibe.bench.training_work import measure_run, our_training, reference_training, step_parts
from sibe.bench.workloads import (
    bench_config,
    envpool_env_step,
    our_env_step,
    period,
    reference_env_step,
)
from sibe.config.schema import RunConfig
from sibe.envs.tasks import PAPER_BACKGROUNDS


def environment(bench: Bench) -> Section:
    """Time an agent step of the environment in each visual setting; EnvPool has only clean."""
    rows = []
    for preset in bench.plan.presets:
        for background in PAPER_BACKGROUNDS:
            config = bench_config(preset, background=background)
            rows.append(_step_row(bench, config, reference_env_step))
        if has_envpool():
            config = bench_config(preset, background="clean")
            rows.append(_step_row(bench, config, envpool_env_step, ", against EnvPool"))
    return Section(rows)


def _step_row(
    bench: Bench, config: RunConfig, reference: Callable[[RunConfig], Work], note: str = ""
) -> Row:
    works = {
        "ours": bench.ours.prepare("ours", our_env_step, config),
        "reference": bench.reference.prepare("reference", reference, config),
    }
    times = interleave(works, bench.plan.pairs, bench.plan.seconds)
    bench.forget()
    size = f"{config.env.size}×{config.env.size}"
    return timed_row(f"environment step, {config.env.background}, {size}{note}", times)


def training(bench: Bench) -> Section:
    """Time whole agent steps on both sides, and split ours into parts."""
    plan, rows, parts = bench.plan, [], {}
    for preset in plan.presets:
        config = bench_config(preset)
        works = {
            name: bench.side(name).prepare(name, make, config, plan.stored, units=period(config))
            for name, make in (("ours", our_training), ("reference", reference_training))
        }
        times = interleave(works, plan.pairs, plan.seconds)
        rows.append(timed_row(f"training step, {preset}, noise", times))
        bench.forget()
    first, last = plan.presets[0], plan.presets[-1]
    if first != last:  # the large preset is too slow for whole episodes
        steps = plan.part_steps
        parts[first] = bench.ours.call(step_parts, bench_config(first), plan.stored, steps)
    run = bench.ours.call(measure_run, bench_config(last), plan.episodes)
    before = baseline(last, bench.refresh())
    rows.append(_run_row(last, run, before))
    if before is not None:
        parts[f"{last}, {before.commit}"] = before.parts
    parts[last] = run
    return Section(rows, _run_goals(last, run, rows[-1]), parts)


def _run_row(preset: str, parts: dict[str, float], before: Baseline | None) -> Row:
    """Return the time of a whole run per agent step, against that of the earlier commit."""
    name, seconds = f"whole run per agent step, {preset}, noise", sum(parts.values())
    if before is None:
        return Row(name, "s", seconds)
    ratio = before.seconds / seconds
    return Row(f"{name}, against {before.commit}", "s", seconds, before.seconds, ratio)


def _run_goals(preset: str, parts: dict[str, float], row: Row) -> list[Goal]:
    lost = lost_share(parts)
    goals = [Goal(f"{preset}: share of a whole run that is not the update", lost, 0.15, False)]
    if row.ratio is not None:
        name = f"{preset}: whole run, times faster than the earlier commit"
        goals.append(Goal(name, row.ratio, 1.7, True))
    return goals


def lost_share(parts: dict[str, float]) -> float:
    """Return the share of the time that goes to anything but the update."""
    return 1 - sum(parts.get(part, 0.0) for part in UPDATE_PARTS) / sum(parts.values())


def processes(bench: Bench) -> Section:
    """Compare the throughput of two runs with a thread each with one run with two threads."""
    plan = bench.plan
    config = bench_config(plan.presets[-1])
    with Side(threads=2) as one, Side(threads=1) as left, Side(threads=1) as right:
        for side in (one, left, right):
            side.prepare("run", our_training, config, plan.stored)
            side.seconds("run")
        repeat = max(1, int(5 * plan.seconds / one.seconds("run")))
        alone, together = [], []
        for _ in range(plan.pairs):
            alone.append(one.seconds("run", repeat) / period(config))
            pair = [side.begin("run", repeat) for side in (left, right)]
            # Two runs make a step each in this time: half of it per step.
            together.append(max(run.result() for run in pair) / 2 / period(config))
    preset = plan.presets[-1]
    rows = [
        timed_row(f"training step, {preset}, one run with two threads", {"ours": alone}),
        timed_row(f"training step, {preset}, two runs with a thread each", {"ours": together}),
    ]
    gain = median_ratio(alone, together)
    return Section(rows, [Goal(f"{preset}: two runs at once, throughput gained", gain, 1.5, True)])
