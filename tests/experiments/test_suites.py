"""Suites: the grids, their slices and configs, the estimate of the time, the status from files."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sibe.catalogue.registry import METHODS
from sibe.catalogue.run_config import updates_per_run
from sibe.cli import main as cli
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.experiments.catalogue import describe_suite, describe_suites
from sibe.experiments.estimate import Speed, SpeedMeter, measure_speed, run_seconds
from sibe.experiments.plan import (
    PlannedRun,
    as_stored,
    build_config,
    count_updates,
    missing_methods,
    plan,
    settle,
)
from sibe.experiments.request import Overrides, Slice, select
from sibe.experiments.status import describe, run_status
from sibe.experiments.suites import SUITES, MethodVariant, Suite, find_suite
from sibe.storage import checkpoint
from sibe.storage.run_directory import RunDirectory, first_difference

NOTHING = Overrides()


def run_cli(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(["suite", *args])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def config_of(suite: str, variant: str, **overrides: Any) -> RunConfig:
    found = find_suite(suite)
    run = select(found, Slice(methods=(variant,)))[0]
    return build_config(found, run, Overrides(**overrides))


# the grids ------------------------------------------------------------------------------------


def test_the_paper_is_six_tasks_five_methods_five_seeds_per_setting() -> None:
    for name, background in (("standard", "clean"), ("noise", "noise"), ("video", "video")):
        suite = SUITES[f"paper-{name}"]
        runs = suite.runs()
        assert len(runs) == 6 * 5 * 5 and {run.background for run in runs} == {background}
        methods = {run.variant.method for run in runs}
        assert methods == {"sibe", "proto", "db", "plan2explore", "rpc"}
        assert suite.preset == "paper"
        # 500 000 env steps at action repeat 8, 4 or 2, less the first 999 agent steps
        counted = {
            (run.task, run.variant.method): count_updates(suite, run, NOTHING) for run in runs
        }
        # a standalone agent: every 10 env steps after the first 5000
        assert counted["walker_walk", "plan2explore"] == 49_501
        updates = {
            task: {counted[task, method] for method in methods - {"plan2explore"}}
            for task in suite.tasks
        }
        assert updates == {
            "ball_in_cup_catch": {124_001},
            "cartpole_swingup_sparse": {61_501},
            "reacher_easy": {124_001},
            "cartpole_swingup": {61_501},
            "walker_walk": {249_001},
            "cheetah_run": {124_001},
        }


@pytest.mark.parametrize("name", SUITES)
def test_every_run_has_a_directory_of_its_own(name: str) -> None:
    runs = SUITES[name].runs()
    assert len({run.directory for run in runs}) == len(runs)
    first = runs[0]
    assert first.directory.parts == (
        f"{first.task}-{first.background}",
        first.variant.name,
        f"seed{first.seed}",
    )
    seeds = [run.seed for run in runs]
    assert seeds == sorted(seeds), "the first seed of everything comes first"


def difference(a: RunConfig, b: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The fields in which two configs differ, by brute force."""

    def flat(value: Any, name: str = "") -> dict[str, Any]:
        if isinstance(value, dict):
            return {k: v for key in value for k, v in flat(value[key], f"{name}.{key}").items()}
        return {name[1:]: value}

    first, second = flat(as_stored(a)), flat(as_stored(b))
    return {k: (first[k], second[k]) for k in first if first[k] != second[k]}


def test_ablations_change_what_the_paper_says_and_nothing_else() -> None:
    components, chunk = SUITES["ablation-components"], SUITES["ablation-chunk"]
    sparse = {"ball_in_cup_catch", "reacher_easy", "cartpole_swingup_sparse"}
    assert set(components.tasks) == set(chunk.tasks) == sparse
    assert (len(components.runs()), len(chunk.runs())) == (3 * 3 * 3 * 5, 3 * 5 * 5)
    plain = config_of("ablation-components", "sibe")

    def changed(suite: str, variant: str) -> dict[str, tuple[Any, Any]]:
        return difference(plain, config_of(suite, variant))

    assert changed("ablation-components", "sibe-no-reward") == {
        "method_config.intrinsic": (0.001, 0.0)
    }
    assert changed("ablation-components", "sibe-no-compression") == {
        "method_config.alpha": (0.1, 0.0)
    }
    assert changed("ablation-chunk", "sibe-L2") == {}
    assert changed("ablation-chunk", "sibe-L4") == {"sac.chunk": (2, 4)}
    assert changed("ablation-chunk", "sibe-L1") == {"sac.chunk": (2, 1)}
    assert changed("ablation-chunk", "sibe-L1-double") == {
        "sac.chunk": (2, 1),
        "sac.method_batch": (1, 2),
    }


def test_the_study_of_sensors_changes_sensors_and_nothing_else() -> None:
    plain = config_of("study-sensors", "sibe")
    both = {"env.sensors": (["pixels"], ["pixels", "state"])}
    assert difference(plain, config_of("study-sensors", "sibe-both")) == both
    assert difference(plain, config_of("study-sensors", "sibe-both-dropout")) == {
        **both,
        "env.sensor_dropout": (0.0, 0.3),
    }
    assert config_of("study-sensors", "sibe-state").env.seen.names == ("state",)


@pytest.mark.parametrize("suite", [name for name in SUITES if name != "study-sensors"])
def test_every_suite_takes_any_sensors(suite: str) -> None:
    for run in SUITES[suite].runs():
        asked = Overrides(sensors=("pixels", "state"), cameras=(0, 1))
        plain, several = (build_config(SUITES[suite], run, one) for one in (NOTHING, asked))
        assert difference(plain, several) == {
            "env.sensors": (["pixels"], ["pixels", "state"]),
            "env.cameras": ([], [0, 1]),
        }


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("smoke", "--sensors", "pixels", "lidar"), "lidar"),
        (("smoke", "--sensors"), "one value or more"),
        (("smoke", "--cameras", "0", "9"), "cartpole_swingup has cameras 0 to 1"),
        (("smoke", "--sensors", "state", "--cameras", "0", "1"), "cameras see pixels"),
        (("study-sensors", "--sensors", "state"), "study-sensors compares sensors"),
    ],
)
def test_sensors_that_a_suite_cannot_have_are_refused_before_it_starts(
    args: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = run_cli(capsys, "run", *args, "--root", str(tmp_path / "root"))
    assert code == 2 and words in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("suite", [name for name in SUITES if name.startswith("study-")])
def test_the_study_masks_the_background_of_video_with_every_method(suite: str) -> None:
    for run in SUITES[suite].runs():
        encoder = build_config(SUITES[suite], run, NOTHING).encoder
        chroma = suite == "study-sensors"  # made before there were foreground masks
        assert encoder.chroma == chroma
        assert encoder.foreground == (run.background.startswith("video") and not chroma)


def test_smoke_is_tiny_and_says_its_threads() -> None:
    suite = SUITES["smoke"]
    assert len(suite.runs()) == 2 * 2 * 2
    configs = [build_config(suite, run, NOTHING) for run in suite.runs()]
    assert {config.threads for config in configs} == {1}
    assert {config.method for config in configs} == {"sibe", "none"}
    assert {config.env.background for config in configs} == {"clean", "noise"}
    assert all(0 < updates_per_run(config) <= 100 for config in configs)


# slices and overrides --------------------------------------------------------------------------


def test_a_slice_is_the_part_of_the_grid_that_fits() -> None:
    suite = SUITES["ablation-components"]
    part = Slice(tasks=("reacher_easy",), backgrounds=("noise", "video"), seeds=(2, 5))
    runs = select(suite, part)
    assert len(runs) == 1 * 2 * 2 * 3
    assert runs == [
        run
        for run in suite.runs()
        if run.task == "reacher_easy" and run.background != "clean" and run.seed in (2, 5)
    ]
    assert len(select(suite, Slice(methods=("sibe-no-reward",)))) == 3 * 3 * 5
    # the method's own name is the name of the plain variant and of the method of all
    assert len(select(suite, Slice(methods=("sibe",)))) == 3 * 3 * 3 * 5


def test_overrides_reach_the_config() -> None:
    config = config_of("smoke", "sibe", env_steps=5000, eval_every=500, eval_episodes=3, threads=2)
    assert config.schedule.env_steps == 5000 and config.threads == 2
    assert (config.schedule.eval_every, config.schedule.eval_episodes) == (500, 3)
    assert config_of("paper-standard", "sibe", preset="cpu").encoder.fusion == "late"
    video = find_suite("paper-video")
    run = select(video, Slice(methods=("sibe",)))[0]
    assert build_config(video, run, Overrides(clips="bank")).env.clips == "bank"
    assert config_of("paper-noise", "sibe", clips="bank").env.clips is None
    with pytest.raises(UserError, match="--env-steps must be at least 1"):
        config_of("smoke", "sibe", env_steps=0)


def test_every_method_of_every_suite_is_there() -> None:
    assert [m for suite in SUITES.values() for m in missing_methods(suite.runs())] == []


@pytest.mark.parametrize("preset", ["cpu", "paper"])
def test_a_preset_is_the_same_for_every_background_but_for_the_foreground(preset: str) -> None:
    standard, *others = (
        config_of(f"paper-{setting}", "sibe", preset=preset)
        for setting in ("standard", "noise", "video", "video-random")
    )
    for other in others:
        env = replace(other.env, background=standard.env.background)
        encoder = replace(other.encoder, foreground=False)
        assert replace(other, env=env, encoder=encoder) == standard


@pytest.fixture
def unknown_method(monkeypatch: pytest.MonkeyPatch) -> Suite:
    suite = replace(
        SUITES["smoke"],
        name="other",
        variants=(MethodVariant("nosuch", "nosuch"), MethodVariant("sibe", "sibe")),
    )
    monkeypatch.setitem(SUITES, "other", suite)
    return suite


def test_a_missing_method_is_named_and_breaks_no_list(
    unknown_method: Suite, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "nosuch" not in METHODS
    code, out, _ = run_cli(capsys, "list", "--no-measure")
    assert code == 0 and "not in this version of sibe" in out and "nosuch" in out
    code, out, _ = run_cli(capsys, "list", "other", "--no-measure")
    assert code == 0 and "nosuch" in out.splitlines()[-1]
    code, out, _ = run_cli(capsys, "status", "other", "--root", str(tmp_path))
    assert code == 0 and "4 waiting" in out and "4 runs need methods" in out
    code, _, err = run_cli(capsys, "run", "other", "--root", str(tmp_path / "new"))
    assert code == 2 and "nosuch" in err and "--methods sibe" in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists()


# what the machine decides ----------------------------------------------------------------------


def planned(suite: str, root: Path, **overrides: Any) -> PlannedRun:
    found = find_suite(suite)
    runs = select(found, Slice(methods=("sibe",)))
    return plan(found, runs, Overrides(**overrides), root)[0]


def test_a_run_keeps_the_threads_and_device_it_was_started_with(tmp_path: Path) -> None:
    fresh = planned("ablation-chunk", tmp_path)
    first = settle(fresh, threads=3, device="cpu", given=NOTHING)
    assert (first.config.threads, first.config.device) == (3, "cpu")
    RunDirectory.create_or_open(first.path, as_stored(first.config), {}).close()
    again = settle(fresh, threads=7, device="cuda", given=NOTHING)
    assert first_difference(as_stored(first.config), as_stored(again.config)) is None
    zero = planned("ablation-chunk", tmp_path / "new", threads=0)
    settled = settle(zero, threads=4, device="cpu", given=Overrides(threads=0))
    assert settled.config.threads == 4, "0 is for the engine to decide"
    with pytest.raises(UserError, match=r"threads is 3 there and 7 here.*--root"):
        asked = Overrides(threads=7)
        settle(planned("ablation-chunk", tmp_path, threads=7), threads=1, device="cpu", given=asked)
    with pytest.raises(UserError, match=r"a run of 500000 env steps.*not cut to 900"):
        asked = Overrides(env_steps=900)
        other = planned("ablation-chunk", tmp_path, env_steps=900)
        settle(other, threads=1, device="cpu", given=asked)
    more = planned("ablation-chunk", tmp_path, env_steps=600_000)
    given = Overrides(env_steps=600_000)
    settled = settle(more, threads=1, device="cpu", given=given)  # the run will be extended
    assert (settled.config.schedule.env_steps, settled.config.threads) == (600_000, 3)


def test_a_folder_of_something_else_is_refused_before_anything_starts(tmp_path: Path) -> None:
    run = planned("smoke", tmp_path)
    run.path.mkdir(parents=True)
    (run.path / "config.json").write_text(json.dumps(as_stored(run.config)))
    (run.path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"an exported policy .it has config\.json, model\.safe"):
        settle(run, threads=1, device="cpu", given=NOTHING)


# the estimate ----------------------------------------------------------------------------------


def test_time_of_a_run_is_its_updates_and_its_env_steps() -> None:
    config = config_of("paper-standard", "sibe")  # ball_in_cup: action repeat 4
    # 124 000 updates; 125 000 agent steps of training, 50 evaluations of 10 episodes of 250
    assert run_seconds(config, Speed(1.0, 0.0)) == 124_001
    assert run_seconds(config, Speed(0.0, 1.0)) == 125_000 + 50 * 10 * 250


def test_what_costs_the_same_is_measured_once_per_call() -> None:
    measured: list[RunConfig] = []

    def measure(config: RunConfig) -> Speed:
        measured.append(config)
        return Speed(2.0, 0.0)

    suites = [SUITES[f"paper-{name}"] for name in ("standard", "noise", "video")]
    text = describe_suites(suites, NOTHING, SpeedMeter(measure))
    assert [config.method for config in measured] == ["sibe", "plan2explore"]
    # 16 674 525 updates of 2 s are 385 days and 23 hours
    assert text.count("16674525") == text.count("385d23h") == 3
    assert describe_suites(suites, NOTHING, SpeedMeter(measure), jobs=10).count("38d14h") == 3
    detail = describe_suite(SUITES["smoke"], SUITES["smoke"].runs(), NOTHING, SpeedMeter(measure))
    assert "8 runs, 408 updates, time 13m36s" in detail


def test_measuring_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    speed = measure_speed(replace(config_of("smoke", "sibe"), threads=1, device="cpu"))
    assert 0 < speed.update < 10 and 0 < speed.agent_step < 10
    # torch makes a cache folder of its own there if its compiler is imported by then.
    left = [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor")]
    assert left == [] and torch.get_num_threads() == threads


# the status ------------------------------------------------------------------------------------


def write_logs(path: Path, rows: list[tuple[int, float]], returns: list[float]) -> None:
    """Rows are (episode length, fps)."""
    frame, lines = 0, ["frame,episode_length,fps"]
    for length, fps in rows:
        frame += length
        lines.append(f"{frame},{length},{fps}")
    (path / "train.csv").write_text("\n".join(lines) + "\n")
    evals = ["frame,episode_reward", *(f"{i},{value}" for i, value in enumerate(returns))]
    (path / "eval.csv").write_text("\n".join(evals) + "\n")


def test_status_from_files(tmp_path: Path) -> None:
    suite = find_suite("smoke")
    runs = plan(suite, select(suite, Slice(seeds=(1,))), Overrides(), tmp_path)
    done, running, failed, waiting = (run.path for run in runs)
    for run, rows in ((runs[0], [(1000, 10.0)] * 2), (runs[1], [(500, 50.0), (500, 25.0)])):
        RunDirectory.create_or_open(run.path, as_stored(run.config), {}).close()
        write_logs(run.path, rows, [1.0, 37.25])
    checkpoint.save(done / "checkpoint", 1000, {})
    checkpoint.save(running / "checkpoint", 1000, {})
    checkpoint.save(done / "checkpoint", 2000, {})
    failed.parent.mkdir(parents=True)
    failed.with_name("seed1.failed").write_text("exit code 2: the disk is full\n")

    with RunDirectory.create_or_open(running, as_stored(runs[1].config), {}):
        status = [run_status(run) for run in runs]
    assert [one.state for one in status] == ["done", "running", "failed", "waiting"]
    # 1000 env steps in 10 + 20 seconds; 1000 more to go
    assert status[1].env_step == 1000 and status[1].env_steps == 2000
    assert status[1].seconds_left == pytest.approx(30.0)
    assert status[1].eval_return == 37.25 and math.isnan(status[3].eval_return)
    assert status[2].note == "exit code 2: the disk is full"
    text = describe(status)
    assert "4 runs: 1 done, 1 running, 1 failed, 1 waiting" in text
    # two runs without a speed of their own at the median of 10 and 33.3 per second: 92.3 s each
    assert "about 3m35s left with 1 at a time" in text
    assert run_status(runs[1]).state == "waiting", "nobody holds its lock any more"
    assert not waiting.exists(), "looking makes no folder"


def test_a_damaged_file_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    suite = find_suite("smoke")
    run = plan(suite, suite.runs(), Overrides(), tmp_path)[0]
    run.path.mkdir(parents=True)
    (run.path / "config.json").write_text("{")
    status = run_status(run)
    assert status.state == "failed" and "config.json is damaged" in status.note


def test_status_shows_the_length_a_run_was_started_with(tmp_path: Path) -> None:
    suite = find_suite("smoke")
    longer = plan(suite, suite.runs(), Overrides(env_steps=9000), tmp_path)[0]
    RunDirectory.create_or_open(longer.path, as_stored(longer.config), {}).close()
    assert run_status(plan(suite, suite.runs(), Overrides(), tmp_path)[0]).env_steps == 9000


def test_status_of_a_run_that_the_same_flags_would_extend(tmp_path: Path) -> None:
    suite = find_suite("smoke")
    run = plan(suite, suite.runs(), Overrides(), tmp_path)[0]
    RunDirectory.create_or_open(run.path, as_stored(run.config), {}).close()
    checkpoint.save(run.path / "checkpoint", 2000, {})
    assert run_status(run).state == "done"
    longer = plan(suite, suite.runs(), Overrides(env_steps=4000), tmp_path)[0]
    status = run_status(longer)
    assert (status.state, status.env_steps) == ("waiting", 4000)


# bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run smok", "did you mean smoke?"),
        ("list paper-nois", "did you mean paper-noise"),
        ("status smoky", "unknown suite"),
        ("run smoke --tasks walker_walk", "has no task 'walker_walk'"),
        ("run smoke --methods sib", "did you mean sibe?"),
        ("run smoke --backgrounds video", "has no background 'video'"),
        ("run smoke --seeds 3", "has no seed '3'"),
        ("run smoke --tasks", "--tasks names nothing"),
        ("run smoke --jobs 0", "--jobs must be at least 1"),
        ("run smoke --jobs two", "--jobs"),
        ("list --jobs 0", "--jobs must be at least 1"),
        ("list --no-measure --seeds 1", "go with a suite's name"),
        ("run smoke --retries -1", "--retries"),
        ("run smoke --env-steps -5", "--env-steps"),
        ("run smoke --preset papr", "did you mean paper?"),
        ("run smoke --engine slurm", "slurm"),
        ("run smoke --address here:1", "go with --engine ray"),
        ("run smoke --root {}/file/below", "choose another --root"),
        ("status smoke --root {}/nowhere", "there is no folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    line: str,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    code, out, err = run_cli(capsys, *line.replace("{}", str(tmp_path)).split())
    assert code == 2 and out == ""
    assert err.startswith("sibe: ") and err.count("\n") == 1 and words in err
    assert os.listdir(tmp_path) == ["file"]


def test_another_config_in_the_root_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = planned("smoke", tmp_path)
    config = {**as_stored(run.config), "device": "cpu"}
    RunDirectory.create_or_open(run.path, config, {}).close()
    before = sorted(tmp_path.rglob("*"))
    code, _, err = run_cli(capsys, "run", "smoke", "--root", str(tmp_path), "--env-steps", "900")
    assert code == 2 and "is a run of 2000 env steps" in err
    assert sorted(tmp_path.rglob("*")) == before
    assert json.loads((run.path / "config.json").read_text()) == config


def test_a_run_from_before_a_field_existed_is_the_same_run(tmp_path: Path) -> None:
    run = planned("smoke", tmp_path)
    old = {**as_stored(run.config), "threads": 1, "device": "cpu"}
    del old["schedule"]["eval_process"]
    RunDirectory.create_or_open(run.path, old, {}).close()
    settled = settle(run, threads=1, device="cpu", given=Overrides())
    assert settled.config.schedule == run.config.schedule
