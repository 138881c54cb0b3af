"""Data: sampling with augmentation, what the replay takes in memory, what a checkpoint takes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sibe.bench.plan import Bench
from sibe.bench.reference.replay import StackedReplay
from sibe.bench.results import Goal, Row, Section, timed_row
from sibe.bench.saving_work import bytes_in, our_saving, reference_saving
from sibe.bench.sides import interleave, median_ratio
from sibe.bench.workloads import (
    ACTION_DIM,
    bench_config,
    episode_steps,
    our_sampling,
    our_update,
    period,
    reference_sampling,
)
from sibe.catalogue.run_config import sampling as config_sampling
from sibe.config.schema import RunConfig
from sibe.replay.replay import Replay


def sampled_bytes(config: RunConfig) -> int:
    """Return the bytes that a minibatch must move: every pixel of it read once, written once."""
    drawn, env = config_sampling(config), config.env
    if drawn.frames_per_state == 1:
        frames = (drawn.length + 1) * env.stack
    else:  # one set for each encoder
        online = drawn.online or drawn.length + 1
        states = online + drawn.length + 1 - drawn.target
        frames = states + 2 * (drawn.frames_per_state - 1)
    return 2 * frames * drawn.batch * env.size**2 * 3


def sampling(bench: Bench) -> Section:
    """Time a minibatch on both sides, against an update, and from a large replay."""
    rows, goals, plan = [], [], bench.plan
    small, large = plan.transitions
    for preset in plan.presets:
        config = bench_config(preset)
        works = {
            "ours": bench.ours.prepare("ours", our_sampling, config, plan.stored),
            "reference": bench.reference.prepare(
                "reference", reference_sampling, config, plan.stored
            ),
            "update": bench.ours.prepare("update", our_update, config, units=period(config)),
        }
        times = interleave(works, plan.pairs, plan.seconds)
        limit = sampled_bytes(config) / bench.refresh().copy_bytes
        rows.append(timed_row(f"sample and augment, {preset}", times, limit=limit))
        share = median_ratio(times["ours"], times["update"])
        goals.append(Goal(f"{preset}: sampling over an update", share, 0.05, False))
        bench.forget()
        sizes = {
            str(count): bench.ours.prepare(str(count), our_sampling, config, count)
            for count in (small, large)
        }
        times = interleave(sizes, plan.pairs, plan.seconds)
        for count in (small, large):
            name = f"sample and augment, {preset}, of {count} transitions"
            rows.append(timed_row(name, {"ours": times[str(count)]}, limit=limit))
        slower = median_ratio(times[str(large)], times[str(small)])
        goals.append(Goal(f"{preset}: sampling of {large} over {small}", slower, 1.1, False))
        bench.forget()
    return Section(rows, goals)


def memory(bench: Bench) -> Section:
    """Count the bytes per transition of both replays; nothing is timed."""
    rows, goals = [], []
    for preset in bench.plan.presets:
        config = bench_config(preset)
        ours, reference = replay_bytes(config), reference_replay_bytes(config)
        frame = config.env.size**2 * 3
        name = f"replay per transition, {preset}"
        rows.append(Row(name, "B", ours, reference, reference / ours, frame, frame / ours))
        goals.append(Goal(f"{preset}: frames per transition", ours / frame, 1.25, False))
    return Section(rows, goals)


def replay_bytes(config: RunConfig) -> float:
    """Return the bytes of our replay per transition; an episode has one frame more than those."""
    side, length = config.env.size, episode_steps(config)
    capacity = 1000 * (length + 1)
    whole = Replay.nbytes_for(capacity, (side, side, 3), ACTION_DIM, config.sac.shift)
    return whole / (1000 * length)


def reference_replay_bytes(config: RunConfig) -> float:
    """Return the bytes of the reference replay per transition."""
    shape = (3 * config.env.stack, config.env.size, config.env.size)
    return StackedReplay(100, shape, ACTION_DIM).nbytes / 100


def checkpoint(bench: Bench) -> Section:
    """Time and weigh what is written between two checkpoints, on both sides."""
    rows = []
    for preset in bench.plan.presets:
        config = bench_config(preset)
        between = min(
            config.schedule.checkpoint_every // config.env.action_repeat, bench.plan.stored
        )
        with tempfile.TemporaryDirectory(prefix="sibe-bench-") as folder:
            ours, reference = Path(folder) / "ours", Path(folder) / "reference"
            works = {
                "ours": bench.ours.prepare("ours", our_saving, config, between, ours),
                "reference": bench.reference.prepare(
                    "reference", reference_saving, config, between, reference
                ),
            }
            times = interleave(works, bench.plan.pairs, 0.0)
            what = f"{preset}, {between} transitions"
            rows.append(timed_row(f"checkpoint, {what}", times))
            sizes = float(bytes_in(ours)), float(bytes_in(reference))
            rows.append(Row(f"checkpoint size, {what}", "B", *sizes, sizes[1] / sizes[0]))
        bench.forget()
    return Section(rows)
