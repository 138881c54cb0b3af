"""The benchmark's own arithmetic and bookkeeping; never how long anything takes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sibe.agents.sac.agent import SAC
from sibe.bench import data, learner, running, suite, training_work
from sibe.bench.arithmetic import encoder_macs, update_macs
from sibe.bench.baseline import baseline
from sibe.bench.machine import Machine
from sibe.bench.picture import COLORS, _whole, write_picture
from sibe.bench.plan import QUICK, Bench, Plan
from sibe.bench.reference.learner import SeparateSAC
from sibe.bench.reference.replay import Batch, StackedReplay, pad_and_crop
from sibe.bench.results import Goal, Section, table, timed_row
from sibe.bench.sides import Side, Timed, interleave
from sibe.bench.stopwatch import CHECKPOINT, EVALUATION, LOOP, OTHER_PARTS, UPDATE_PARTS, Stopwatch
from sibe.bench.workloads import (
    ACTION_DIM,
    bench_config,
    make_agent,
    make_reference,
    our_replay,
    our_sampling,
    period,
    plain_batch,
)
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.envs.tasks import PAPER_BACKGROUNDS
from sibe.errors import UserError
from sibe.methods.sibe import SIBE
from sibe.nn.encoder import conv_size
from sibe.nn.late_encoder import POOLED
from sibe.replay.chunk import Chunk

DEBUG = bench_config("debug")


def with_sac(config: RunConfig, **changes: Any) -> RunConfig:
    return replace(config, sac=replace(config.sac, **changes))


def make_chunk(config: RunConfig) -> Chunk:
    g = torch.Generator().manual_seed(3)
    wanted, size = sampling(config), config.env.size
    n, steps, frames = wanted.batch, wanted.length, wanted.frames_per_state
    shape = (steps + frames, n, size, size, 9 // frames)
    views = torch.randint(0, 256, (2, *shape), generator=g, dtype=torch.uint8)
    return Chunk(
        views[0],
        torch.rand(steps, n, ACTION_DIM, generator=g) * 2 - 1,
        torch.rand(steps, n, generator=g),
        torch.ones(steps, n),
        None if frames == 1 else views[1],
        frames,
    )


def late(config: RunConfig) -> RunConfig:
    """The same run with late fusion."""
    return replace(config, encoder=replace(config.encoder, fusion="late", strides=(2, 1)))


# ---------------------------------------------------------------- arithmetic


def counted_macs(config: RunConfig) -> float:
    """What torch counts in one period of updates, per update."""
    agent, chunk = make_agent(config), make_chunk(config)
    with FlopCounterMode(display=False) as counter:
        for _ in range(period(config)):
            agent.update(chunk)
    flops: int = counter.get_total_flops()
    return flops / 2 / period(config)


@pytest.mark.parametrize(
    ("method", "sac"),
    [
        ("sibe", {}),
        ("sibe", {"transitions": "all", "actor_every": 1}),
        ("sibe", {"chunk": 1, "method_batch": 2}),
        ("sibe", {"chunk": 3, "actor_every": 3}),
        ("none", {"transitions": "all"}),
        ("none", {"chunk": 1}),
    ],
    ids=str,
)
def test_the_arithmetic_of_an_update_is_what_torch_counts(method: str, sac: dict[str, Any]) -> None:
    config = with_sac(bench_config("debug", method), **sac)
    assert sum(update_macs(config, ACTION_DIM).values()) == counted_macs(config)


@pytest.mark.parametrize("method", ["sibe", "none"])
def test_the_arithmetic_of_late_fusion_is_what_torch_counts(method: str) -> None:
    config = late(with_sac(bench_config("debug", method), n_step=3, transitions="all"))
    # But for the max-pooled layer: torch multiplies by the zeros of all places without a peak.
    height, width = conv_size(config.env.size, (*config.encoder.strides, 1))
    zeros = (height * width - 1) * 9 * config.encoder.filters * POOLED
    frames = (config.sac.chunk + config.env.stack - 1) * config.sac.batch
    needed = counted_macs(config) - 2 * frames * zeros
    assert sum(update_macs(config, ACTION_DIM).values()) == needed


@pytest.mark.parametrize("change", [{"alpha": 0.0}, {"negatives": "step"}], ids=str)
def test_the_arithmetic_follows_the_method(change: dict[str, Any]) -> None:
    config = replace(DEBUG, method_config=replace(DEBUG.method_config, **change))
    assert sum(update_macs(config, ACTION_DIM).values()) == counted_macs(config)


def test_plain_sac_needs_no_more_than_it_does() -> None:
    config = bench_config("debug", "none")
    assert sum(update_macs(config, ACTION_DIM).values()) <= counted_macs(config)


def test_the_encoder_of_the_paper() -> None:
    # By hand: 84 -> 41 -> 39 -> 37 -> 35 with 3×3 kernels, 9 channels in, 32 filters, 50 features.
    convs = 41**2 * 81 * 32 + (39**2 + 37**2 + 35**2) * 288 * 32
    forward, backward = encoder_macs(preset_config("paper"))
    assert forward == convs + 35 * 35 * 32 * 50
    assert backward == 2 * forward - 41**2 * 81 * 32


# ---------------------------------------------------------------- the reference


def same_weights(agent: SAC, reference: SeparateSAC) -> None:
    """Give the reference learner the weights of ours."""
    for ours, plain in (
        (agent.encoder, reference.encoder),
        (agent.target_encoder, reference.target_encoder),
    ):
        flat = "place.weight" if agent.config.encoder.fusion == "late" else "project.weight"
        tensors: dict[str, torch.Tensor] = dict(ours.named_parameters())
        height = int((tensors[flat].shape[1] // agent.config.encoder.filters) ** 0.5)
        # Ours flattens height, width, channel; NCHW flattens channel, height, width.
        wide = tensors[flat].reshape(-1, height, height, agent.config.encoder.filters)
        tensors[flat] = wide.permute(0, 3, 1, 2).flatten(1)
        copy(list(tensors.values()), list(plain.parameters()))
    pairs: list[tuple[nn.Module, nn.Module]] = [
        (agent.actor, reference.actor),
        (agent.critic, reference.critic),
        (agent.target_critic, reference.target_critic),
    ]
    if reference.method is not None:
        assert isinstance(agent.method, SIBE)
        names = ("stochastic_encoder", "target_stochastic_encoder", "transition", "projection")
        for name in (*names, "prediction", "target_prediction"):
            pairs.append((getattr(agent.method.bottleneck, name), getattr(reference.method, name)))
        copy([agent.method.bottleneck.bilinear.weight], [reference.method.bilinear])
    for mine, theirs in pairs:
        copy(list(mine.parameters()), list(theirs.parameters()))


@torch.no_grad()
def copy(source: list[torch.Tensor], target: list[torch.Tensor]) -> None:
    for ours, plain in zip(source, target, strict=True):
        assert ours.shape == plain.shape
        plain.copy_(ours)


def both_learners(config: RunConfig) -> tuple[SAC, SeparateSAC, Chunk]:
    """An agent that has learned a little, its likeness, and a chunk; equal noise from here on."""
    agent, reference, chunk = make_agent(config), make_reference(config), make_chunk(config)
    for _ in range(3):
        agent.update(chunk)
    same_weights(agent, reference)
    with torch.no_grad():
        reference.log_temperature.copy_(agent.log_temperature)
    reference.generator.set_state(agent.generator.get_state())
    reference.updates = agent.updates
    return agent, reference, chunk


@pytest.mark.parametrize(("center", "n_step"), [(False, 1), (True, 1), (True, 3)])
# With late fusion and "first" the policy sees another shift of s_{t+1} than in the reference.
@pytest.mark.parametrize(
    ("fusion", "transitions"), [("early", "first"), ("early", "all"), ("late", "all")]
)
@pytest.mark.parametrize("method", ["sibe", "none"])
def test_the_reference_computes_our_losses(
    fusion: str, method: str, transitions: str, center: bool, n_step: int
) -> None:
    config = with_sac(bench_config("debug", method), transitions=transitions, n_step=n_step)
    config = with_sac(config, reward_scale=0.1)
    config = replace(config, encoder=replace(config.encoder, center=center))
    config = late(config) if fusion == "late" else config
    agent, reference, chunk = both_learners(config)
    batch = plain_batch(chunk)
    with torch.no_grad():
        loss, bonus = torch.zeros(()), torch.zeros_like(chunk.reward[: config.sac.chunk])
        if method == "sibe":
            loss, surprise = reference.method_loss(batch)
            bonus = config.method_config.intrinsic * surprise
        critic = reference.critic_loss(batch, bonus)
    metrics = agent.update(chunk)
    # Sums in another order, and the usual guard of 1e-6 in log(1 - tanh²).
    torch.testing.assert_close(metrics["method_loss"], loss, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(metrics["critic_loss"], critic, rtol=1e-4, atol=1e-6)


def test_the_reference_learns_everything() -> None:
    reference, batch = make_reference(DEBUG), plain_batch(make_chunk(DEBUG))
    networks = {name: m for name, m in vars(reference).items() if isinstance(m, torch.nn.Module)}
    before = {name: [p.clone() for p in m.parameters()] for name, m in networks.items()}
    start = reference.log_temperature.item()
    for _ in range(2):
        reference.update(batch)
    for name, module in networks.items():
        for old, new in zip(before[name], module.parameters(), strict=True):
            assert torch.isfinite(new).all()
            assert not torch.equal(old, new), name
    assert reference.log_temperature.item() != start


def test_reference_actions_are_in_range() -> None:
    size = DEBUG.env.size
    action = make_reference(DEBUG).act(np.zeros((9, size, size), np.uint8))
    assert action.shape == (ACTION_DIM,)
    assert (abs(action) <= 1).all()


def test_pad_and_crop_is_a_shift_with_replicated_edges() -> None:
    images = torch.arange(2 * 3 * 5 * 5, dtype=torch.float32).reshape(2, 3, 5, 5)
    out = pad_and_crop(images, 2, np.random.default_rng(0))
    shifts = np.random.default_rng(0).integers(0, 5, size=(2, 2))
    for image, shifted, (dy, dx) in zip(images, out, shifts.tolist(), strict=True):
        rows = torch.arange(5).add(dy - 2).clamp(0, 4)
        columns = torch.arange(5).add(dx - 2).clamp(0, 4)
        assert torch.equal(shifted, image[:, rows][:, :, columns])
    assert torch.equal(pad_and_crop(images, 0, np.random.default_rng(0)), images)


def test_the_usual_replay_returns_chunks_of_one_episode() -> None:
    replay = StackedReplay(20, (1, 2, 2), 1)
    for step in range(30):  # over the end of the ring; episodes of 5
        obs, after = (np.full((1, 2, 2), value, np.uint8) for value in (step, step + 1))
        replay.add(obs, np.array([step], np.float32), step, 1.0, after, last=step % 5 == 4)
    batch = replay.sample(64, 3, 0, np.random.default_rng(0))
    assert isinstance(batch, Batch)
    first = batch.action[0, :, 0]
    assert first.min() >= 10  # older ones are overwritten
    for t in range(3):
        assert torch.equal(batch.action[t, :, 0], first + t)
        assert torch.equal(batch.reward[t], first + t)
        assert torch.equal(batch.obs[t, :, 0, 0, 0], first + t)
        assert torch.equal(batch.next_obs[t, :, 0, 0, 0], first + t + 1)
    assert (first // 5 == (first + 2) // 5).all()
    assert len(replay) == 20


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("preset", ["paper", "cpu"])
def test_bytes_per_transition(preset: str) -> None:
    config = bench_config(preset)
    size, pad, scalars = config.env.size, config.sac.shift, 4 * (ACTION_DIM + 2)
    frame = 3 * size**2
    # 1000 control steps at a repeat of 8: 126 frames for 125 transitions.
    ours = (3 * (size + 2 * pad) ** 2 + scalars) * 126 / 125
    assert data.replay_bytes(config) == pytest.approx(ours, rel=1e-6)
    assert data.reference_replay_bytes(config) == 6 * frame + scalars + 1


def test_bytes_are_those_of_a_real_replay() -> None:
    replay = our_replay(DEBUG, 250)
    assert len(replay) == 250
    assert replay.nbytes / 250 == pytest.approx(data.replay_bytes(DEBUG), rel=1e-3)


def test_bytes_of_a_minibatch() -> None:
    chunk = make_chunk(DEBUG)
    assert data.sampled_bytes(DEBUG) == 2 * chunk.obs.nbytes
    late = replace(DEBUG, encoder=replace(DEBUG.encoder, fusion="late"))
    chunk = our_replay(late, 250).minibatch(sampling(late), np.random.default_rng(0))
    assert isinstance(chunk.obs_target, torch.Tensor)
    assert data.sampled_bytes(late) == 2 * (chunk.obs.nbytes + chunk.obs_target.nbytes)


# ---------------------------------------------------------------- time keeping


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_stopwatch_gives_every_moment_to_one_part() -> None:
    clock = Clock()
    watch = Stopwatch(clock)

    class Owner:
        def outer(self) -> str:
            clock.now += 2
            self.inner()
            clock.now += 1
            return "done"

        def inner(self) -> None:
            clock.now += 4

    owner = Owner()
    watch.wrap(owner, "outer", "a", LOOP)
    watch.wrap(owner, "inner", "b", "a")
    clock.now += 8
    assert owner.outer() == "done"
    owner.inner()  # called from elsewhere than from a: counts for the caller
    watch.switch(LOOP)
    assert watch.seconds == {LOOP: 12.0, "a": 3.0, "b": 4.0}


def test_interleave_takes_turns_and_repeats_short_work() -> None:
    calls: list[tuple[str, int]] = []

    class Fake:
        def __init__(self, name: str, cost: float) -> None:
            self.name, self.cost = name, cost

        def seconds(self, _: str, repeat: int = 1) -> float:
            calls.append((self.name, repeat))
            return self.cost

    works: dict[str, Any] = {
        "ours": Timed(Fake("ours", 0.1), "", 2),  # type: ignore[arg-type]
        "reference": Timed(Fake("reference", 9.0), "", 2),  # type: ignore[arg-type]
    }
    times = interleave(works, 3, 1.0)
    assert times == {"ours": [0.05] * 3, "reference": [4.5] * 3}
    measured = [
        ("ours", 10),
        ("reference", 1),
        ("reference", 1),
        ("ours", 10),
        ("ours", 10),
        ("reference", 1),
    ]
    assert calls[-6:] == measured


def test_a_row_takes_the_median_of_the_ratios() -> None:
    row = timed_row("x", {"ours": [1.0, 2.0, 10.0], "reference": [4.0, 6.0, 10.0]}, limit=1.0)
    assert (row.ours, row.reference, row.ratio, row.of_limit) == (2.0, 6.0, 3.0, 0.5)
    row = timed_row("x", {"ours": [1.0, 2.0, 10.0], "limit": [0.5, 1.5, 2.0]})  # in turns
    assert (row.limit, row.of_limit, row.reference) == (1.5, 0.5, None)


def test_the_machine_is_the_best_that_was_seen(bench: Bench) -> None:
    assert Machine(3.0, 4.0, 2).best(Machine(1.0, 5.0, 2)) == Machine(3.0, 5.0, 2)
    bench.machine = Machine(1e30, 1.0, 1)
    assert bench.refresh() is bench.machine
    assert bench.machine.matmul_flops == 1e30 and bench.machine.copy_bytes > 1.0


def test_goals_know_their_direction() -> None:
    assert Goal("", 2.0, 1.0, True).met and not Goal("", 2.0, 1.0, False).met
    assert Goal("", 1.0, 1.0, True).met and Goal("", 1.0, 1.0, False).met


# ---------------------------------------------------------------- the benchmarks


class HereSide:
    """A side in this process: the benchmarks' logic without the cost of starting others."""

    def __init__(self) -> None:
        self.works: dict[str, Callable[[], object]] = {}

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def prepare(self, name: str, make: Callable[..., Any], *args: Any, units: int = 1) -> Timed:
        self.works[name] = make(*args)
        return Timed(self, name, units)  # type: ignore[arg-type]

    def seconds(self, name: str, repeat: int = 1) -> float:
        start = time.perf_counter()
        self.works[name]()
        return time.perf_counter() - start

    def forget(self) -> None:
        self.works.clear()


@pytest.fixture
def bench() -> Bench:
    machine = Machine(matmul_flops=1e11, copy_bytes=1e10, threads=1)
    return Bench(QUICK, machine, HereSide(), HereSide())  # type: ignore[arg-type]


def check_section(
    section: Section, rows: int, goals: int, *, reference: bool | None = None
) -> None:
    json.dumps(section.to_json())
    assert len(section.rows) == rows and len(section.goals) == goals
    for row in section.rows:
        assert row.ours > 0
        if reference is not None:
            assert (row.reference is not None) == reference == (row.ratio is not None)


def test_update_section(bench: Bench) -> None:
    section = learner.update(bench)
    check_section(section, 2, 3, reference=True)
    for row in section.rows:
        assert len(row.samples["ours"]) == len(row.samples["reference"]) == QUICK.pairs
        limits = np.divide(row.samples["limit"], row.samples["ours"])
        assert len(limits) == QUICK.pairs and row.of_limit == pytest.approx(np.median(limits))


def test_size_section(bench: Bench) -> None:
    section = learner.size(bench)
    check_section(section, 4, 2, reference=False)
    smallest, largest = (row.limit for row in section.rows[:2])
    assert smallest is not None and largest is not None
    assert 1.9 < largest / smallest < 2.1  # B 4 and 8; only the pairs of InfoNCE grow faster


def test_data_sections(bench: Bench) -> None:
    check_section(data.sampling(bench), 3, 2)
    check_section(data.memory(bench), 1, 1, reference=True)
    saved = data.checkpoint(bench)
    check_section(saved, 2, 0, reference=True)
    # Six frames against one.
    assert saved.rows[1].reference is not None and saved.rows[1].reference > 2 * saved.rows[1].ours


def test_environment_section(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PAPER_BACKGROUNDS == ("clean", "noise", "video")
    # The section below trains with noise.
    monkeypatch.setattr(running, "PAPER_BACKGROUNDS", ("clean", "video"))
    check_section(running.environment(bench), 2, 0, reference=True)


def test_training_section_splits_a_run_into_all_its_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(preset: str, *args: str) -> RunConfig:
        config = bench_config(preset, *args)
        return replace(config, env=replace(config.env, action_repeat=100))

    monkeypatch.setattr(running, "bench_config", short)
    section = running.training(bench)
    check_section(section, 2, 1)
    parts = section.parts["debug"]
    assert set(parts) == {*UPDATE_PARTS, *OTHER_PARTS}
    assert all(seconds > 0 for seconds in parts.values())
    assert section.goals[0].value == pytest.approx(
        sum(parts[part] for part in OTHER_PARTS) / sum(parts.values())
    )


def test_the_earlier_run_is_scaled_to_this_machine() -> None:
    slow, fast = (baseline("cpu", Machine(rate, 1e10, 1)) for rate in (1e11, 2e11))
    assert slow is not None and fast is not None and slow.commit == "cd6df3f"
    assert set(slow.parts) == {*UPDATE_PARTS, *OTHER_PARTS}
    assert slow.seconds == pytest.approx(2 * fast.seconds)
    run = {part: 0.5 * seconds for part, seconds in slow.parts.items()}
    row = running._run_row("cpu", run, slow)
    assert row.ratio == pytest.approx(2) and "cd6df3f" in row.name
    assert [goal.met for goal in running._run_goals("cpu", run, row)][1]


def test_there_is_no_earlier_run_of_other_presets_or_threads() -> None:
    assert baseline("debug", Machine(1e11, 1e10, 1)) is None
    assert baseline("cpu", Machine(1e11, 1e10, 63)) is None


def test_evaluation_and_checkpoint_are_shared_out_over_their_period() -> None:
    seconds = {LOOP: 10.0, EVALUATION: 5.0, CHECKPOINT: 2.5}
    config = replace(DEBUG, schedule=replace(DEBUG.schedule, eval_every=800, checkpoint_every=400))
    out = training_work._shared_out(seconds, config, steps=50)
    assert out == {LOOP: 0.2, EVALUATION: 0.05, CHECKPOINT: 0.05}  # a repeat of 8


def test_step_parts_without_a_trainer() -> None:
    parts = training_work.step_parts(DEBUG, 200, 2)
    assert set(parts) == {*UPDATE_PARTS, "sampling", "act", "environment", LOOP}


# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """`sibe bench --quick` with real processes; the file it wrote."""
    file = tmp_path_factory.mktemp("bench") / "bench.json"
    from sibe.cli.bench import Benchmark

    Benchmark(only=("memory",), quick=True, threads=1, json=file).run()
    yield file, table(json.loads(file.read_text()))


def test_the_json_says_where_and_what(result: tuple[Path, str]) -> None:
    values = json.loads(result[0].read_text())
    assert set(values) == {"quick", "machine", "sections"}
    assert values["quick"] is True
    assert list(values["sections"]) == ["memory"]
    assert values["machine"]["matmul_flops"] > 0 and values["machine"]["copy_bytes"] > 0
    assert values["machine"]["threads"] == 1
    assert {"cpu", "versions", "git"} <= set(values["machine"])
    (row,) = values["sections"]["memory"]["rows"]
    assert row["ratio"] == pytest.approx(row["reference"] / row["ours"])
    (goal,) = values["sections"]["memory"]["goals"]
    assert goal["met"] == (goal["value"] <= goal["bound"])


def test_the_table_shows_it(result: tuple[Path, str]) -> None:
    text = result[1]
    assert "GFLOP/s matrix multiply" in text
    assert "replay per transition, debug" in text
    assert "they say nothing" in text


def test_picture_from_the_json(tmp_path: Path, result: tuple[Path, str]) -> None:
    file, out = tmp_path / "bench.json", tmp_path / "parts.png"
    parts = {"paper": dict.fromkeys(UPDATE_PARTS, 0.3), "cpu": dict.fromkeys(COLORS, 0.01)}
    file.write_text(json.dumps({"sections": {"training": {"parts": parts}}}))
    write_picture(file, out)
    pair = {"cpu, 1234567": dict.fromkeys(COLORS, 0.02), "cpu": dict.fromkeys(COLORS, 0.01)}
    assert [_whole(name, {**parts, **pair}) for name in ("paper", *pair)] == pytest.approx(
        [0.3 * len(UPDATE_PARTS), 0.02 * len(COLORS), 0.02 * len(COLORS)]
    )
    assert Image.open(out).size[0] == 1000
    with pytest.raises(UserError, match="no training benchmark"):
        write_picture(result[0], out)
    with pytest.raises(UserError, match=r"\.png"):
        write_picture(file, tmp_path / "parts.jpg")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": ("updte",)}, "did you mean update"),
        ({"threads": -1}, "--threads"),
        ({"picture": Path("x.png")}, "--json"),
        ({"picture": Path("x.jpg"), "json": Path("x.json")}, ".png"),
        ({"json": Path("nowhere/x.json")}, "no folder nowhere"),
    ],
    ids=str,
)
def test_mistakes_are_told_before_anything_is_measured(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sibe.cli.bench import Benchmark

    monkeypatch.setattr(suite, "Side", None)
    with pytest.raises(UserError, match=words):
        Benchmark(**options).run()


def test_every_benchmark_has_a_name() -> None:
    assert tuple(suite._benchmarks()) == suite.NAMES


def test_too_little_memory_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Poor:
        available = 1_000_000

    monkeypatch.setattr(psutil, "virtual_memory", Poor)
    with pytest.raises(UserError, match="GB of RAM"):
        suite._check_memory(Plan())


def test_errors_of_a_side_come_back() -> None:
    with Side(threads=1, reference=True) as side, pytest.raises(UserError, match="too small"):
        side.prepare("x", our_sampling, DEBUG, 0)
