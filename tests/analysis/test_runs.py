"""Reading run directories, sorting them into variants, and the scores and curves they give."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import config_of, write_run

from sibe.analysis.comparison import load_study
from sibe.analysis.runs import read_runs
from sibe.analysis.scores import last_common_step, score_at
from sibe.analysis.series import metric_series, return_series
from sibe.analysis.variants import assign_variants
from sibe.errors import UserError

TASK = "walker_walk"


def small(folder: Path, seed: int = 1, method: str = "sibe", **options: Any) -> Path:
    changes = {
        name: options.pop(name) for name in list(options) if "__" in name or name == "preset"
    }
    config = config_of(TASK, "noise", method, seed, **changes)
    return write_run(folder, config, **{"env_steps": 50_000, **options})


def test_finds_runs_under_several_roots(tmp_path: Path) -> None:
    small(tmp_path / "a" / "deep" / "er" / "seed1")
    small(tmp_path / "b", seed=2)
    shutil.copytree(tmp_path / "a", tmp_path / "other" / "a")
    runs, left_out = read_runs([tmp_path / "a", tmp_path / "b", tmp_path / "other"])
    assert [run.name for run in runs] == ["a/deep/er/seed1", "b", "other/a/deep/er/seed1"]
    assert not left_out
    again, _ = read_runs([tmp_path, tmp_path / "a"])
    assert len(again) == 3  # each once, however often it is named
    run = runs[1]
    assert (run.task, run.background, run.seed) == (TASK, "noise", 2)
    assert (run.reached, run.planned) == (50_000, 500_000)
    assert len(run.episodes["frame"]) == 50 and "kl" in run.training


def test_links_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    small(tmp_path / "elsewhere" / "run")
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(root)
    runs, left_out = read_runs([root])
    assert [run.name for run in runs] == ["root/linked/run"] and not left_out


def test_results_folder_needs_config_and_evaluations_only(tmp_path: Path) -> None:
    run = small(tmp_path / "results" / "seed1")
    for name in ("meta.json", "train.csv", "eval_episodes.csv"):
        (run / name).unlink()
    ((found,), _) = read_runs([tmp_path])
    assert found.meta == {} and found.training == {} and found.episodes == {}


def test_half_written_and_unordered_rows(tmp_path: Path) -> None:
    run = small(tmp_path / "run")
    with (run / "eval.csv").open("a") as file:
        file.write("60000,7500,60,1000.0,12")
    ((found,), left_out) = read_runs([tmp_path])
    assert found.reached == 50_000 and not left_out


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda run: (run / "config.json").write_text("{"), "is damaged"),
        (lambda run: (run / "config.json").write_text("[]"), "is damaged"),
        (lambda run: (run / "config.json").write_text("{}"), "'env' is missing"),
        (
            lambda run: (run / "config.json").write_text(
                (run / "config.json").read_text().replace('"background": "', '"background": "../')
            ),
            "unknown background",
        ),
        (lambda run: (run / "config.json").unlink(), "no config.json"),
        (lambda run: (run / "eval.csv").unlink(), "no evaluation yet"),
        (lambda run: (run / "eval.csv").write_text(""), "no evaluation yet"),
        (
            lambda run: (run / "eval.csv").write_text("frame,step\n1,2\n"),
            "no column episode_reward",
        ),
        (lambda run: (run / "eval.csv").write_text("frame,episode_reward\n1,x\n"), "line 2"),
        (lambda run: (run / "train.csv").write_bytes(b"\xff\xfe\n"), "train.csv"),
    ],
)
def test_broken_run_is_named_and_left_out(
    tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    small(tmp_path / "good")
    bad = small(tmp_path / "bad", seed=2)
    damage(bad)
    runs, left_out = read_runs([tmp_path])
    assert [run.name for run in runs] == [f"{tmp_path.name}/good"]
    ((name, why),) = left_out
    assert name == f"{tmp_path.name}/bad" and reason in why and "\n" not in why
    shutil.rmtree(tmp_path / "good")
    with pytest.raises(UserError, match="no run with an evaluation"):
        read_runs([tmp_path])


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no run with an evaluation under .*: give run direc"):
        read_runs([tmp_path])
    with pytest.raises(UserError, match="nowhere is not a folder"):
        read_runs([tmp_path / "nowhere"])


def test_variants_are_what_may_be_averaged(tmp_path: Path) -> None:
    small(tmp_path / "1")
    small(tmp_path / "2", seed=2, env__size=84)  # the preset's own value is no change
    small(tmp_path / "3", method_config__alpha=0.0)
    small(tmp_path / "4", method_config__intrinsic=0.0)
    small(tmp_path / "5", sac__chunk=1, sac__method_batch=2)
    small(tmp_path / "6", sac__chunk=3)
    small(tmp_path / "7", sac__lr=0.01)
    small(tmp_path / "8", method="none")
    small(tmp_path / "9", method="proto")
    runs, _ = read_runs([tmp_path])
    variants, variant_of = assign_variants(runs)
    assert [(variant.label, variant.kind) for variant in variants] == [
        ("SIBE", "method"),
        ("Proto-RL", "method"),
        ("SAC", "method"),
        ("non-compression SIBE", "component"),
        ("non-reward SIBE", "component"),
        ("SIBE, L = 1, doubled batch", "chunk"),
        ("SIBE, L = 3", "chunk"),
        ("SIBE, sac.lr = 0.01", "other"),
    ]
    by_name = {run.name.rsplit("/", 1)[-1]: variant_of[run.name].label for run in runs}
    assert by_name["1"] == by_name["2"] == "SIBE"
    assert len({(variant.color, variant.dash) for variant in variants}) == len(variants)


def test_presets_and_unknown_fields_split_variants(tmp_path: Path) -> None:
    small(tmp_path / "1")
    small(tmp_path / "2", preset="cpu")
    # Of a method that this version does not know, only disagreement is a difference.
    for seed, hidden in ((1, 1024), (2, 1024), (3, 64)):
        small(tmp_path / f"p{seed}", seed=seed, method="later", method_config__hidden=hidden)
    variants = load_study([tmp_path]).variants
    assert variants[0].color == variants[1].color and variants[0].dash != variants[1].dash
    assert [variant.label for variant in variants] == [
        "SIBE (cpu)",
        "SIBE (paper)",
        "later, hidden = 1024 (paper)",
        "later, hidden = 64 (paper)",
    ]


def test_a_field_that_did_not_exist_yet_was_off(tmp_path: Path) -> None:
    """Not what the preset has since made of it."""
    for seed, steps in ((1, None), (2, 1), (3, 3)):
        config = config_of("cartpole_swingup", "noise", "sibe", seed, preset="cpu")
        assert config["sac"].pop("n_step") == 3
        if steps is not None:
            config["sac"]["n_step"] = steps
        write_run(tmp_path / str(seed), config, env_steps=20_000)
    _, variant_of = assign_variants(read_runs([tmp_path])[0])
    labels = [variant_of[f"{tmp_path.name}/{seed}"].label for seed in (1, 2, 3)]
    assert labels == ["SIBE, sac.n_step = 1"] * 2 + ["SIBE"]


def test_the_schedule_of_learning_splits_variants_and_that_of_evaluation_does_not(
    tmp_path: Path,
) -> None:
    small(tmp_path / "1")
    small(tmp_path / "2", seed=2, schedule__eval_every=5000, schedule__env_steps=70_000)
    small(tmp_path / "4", seed=4, schedule__track="wandb")
    small(tmp_path / "3", seed=3, schedule__replay_capacity=1000)
    labels = [variant.label for variant in load_study([tmp_path]).variants]
    assert labels == ["SIBE", "SIBE, schedule.replay_capacity = 1000"]


def test_sensors_split_variants_and_are_named(tmp_path: Path) -> None:
    small(tmp_path / "1")
    small(tmp_path / "2", seed=2, env__sensors=["pixels"])
    small(tmp_path / "3", seed=3, env__sensors=["pixels", "state"])
    labels = [variant.label for variant in load_study([tmp_path]).variants]
    assert labels == ["SIBE", "SIBE, env.sensors = pixels+state"]


def test_the_clip_bank_counts_where_runs_disagree_on_it(tmp_path: Path) -> None:
    def write(
        folder: str, seed: int, clips: str | None, background: str = "video", **changes: Any
    ) -> None:
        config = config_of("walker_walk", background, "sibe", seed, env__clips=clips, **changes)
        write_run(tmp_path / folder, config, env_steps=20_000)

    write("1", 1, "/here/bank")
    write("2", 2, "/there/bank")
    write("3", 1, "/here/bank", method_config__intrinsic=0.0)
    write("noise", 1, None, "noise")  # has no clips, and is the same variant
    variants = [(variant.label, variant.kind) for variant in load_study([tmp_path]).variants]
    assert variants == [("SIBE", "method"), ("non-reward SIBE", "component")]
    write("4", 3, "/here/other")
    labels = {variant.label for variant in load_study([tmp_path]).variants}
    assert {"SIBE, env.clips = bank", "SIBE, env.clips = other"} <= labels


def test_every_variant_looks_different(tmp_path: Path) -> None:
    for number in range(70):
        small(tmp_path / str(number), env_steps=10_000, sac__lr=number / 100)
    variants = load_study([tmp_path]).variants
    assert len({(variant.color, variant.dash) for variant in variants}) == len(variants) == 70


def test_of_two_copies_the_longer_counts(tmp_path: Path) -> None:
    for name, steps in (("a", 30_000), ("b", 50_000), ("c", 40_000)):
        small(tmp_path / name, env_steps=steps)
    study = load_study([tmp_path])
    assert [run.name.rsplit("/", 1)[-1] for run in study.runs] == ["b"]
    assert {name.rsplit("/", 1)[-1] for name, _ in study.left_out} == {"a", "c"}
    assert all("the same run as" in why for _, why in study.left_out)


def test_scores_at_a_step(tmp_path: Path) -> None:
    small(tmp_path / "1", env_steps=50_000)
    small(tmp_path / "2", seed=2, env_steps=30_000)
    first, second = read_runs([tmp_path])[0]
    assert last_common_step([first, second]) == (30_000, 2)
    assert score_at(first, 40_000) == first.evals["episode_reward"][3]
    assert score_at(second, 40_000) is None
    # An evaluation up to an action repeat (2 here) late is the one that was due.
    assert score_at(first, 39_999) == score_at(first, 40_000)
    assert score_at(first, 39_998) is None and score_at(first, 40_001) is None


def test_evaluations_are_as_late_as_an_env_that_repeats_actions_itself(tmp_path: Path) -> None:
    """Agent steps of 1 to 4 env steps, though the action repeat is 1."""
    small(tmp_path / "run")
    run = read_runs([tmp_path])[0][0]
    config = {**run.config, "env": {**run.config["env"], "action_repeat": 1}}
    late = [[10_002, 20_001, 30_003], [10_001, 20_000, 30_000]]
    runs = [
        replace(
            run,
            config=config,
            evals={
                "frame": np.array(frames, float),
                "step": np.array(frames) // 3,
                "episode_reward": np.arange(3.0),
            },
        )
        for frames in late
    ]
    assert [score_at(one, 10_000) for one in runs] == [0, 0]
    assert [score_at(one, 9_000) for one in runs] == [None, None]
    assert last_common_step(runs) == (30_000, 2)


def test_common_step_of_runs_that_share_none(tmp_path: Path) -> None:
    small(tmp_path / "1", env_steps=9000, every=3000)
    small(tmp_path / "2", seed=2, env_steps=30_000)
    small(tmp_path / "3", seed=3, env_steps=20_000)
    assert last_common_step(read_runs([tmp_path])[0]) == (20_000, 2)


def test_series_over_seeds(tmp_path: Path) -> None:
    small(tmp_path / "1", env_steps=50_000)
    small(tmp_path / "2", seed=2, env_steps=40_000, every=20_000)
    runs, _ = read_runs([tmp_path])
    series = return_series(runs)
    np.testing.assert_array_equal(series.env_step, np.arange(1, 6) * 10_000)
    one, two = (run.evals["episode_reward"] for run in runs)
    np.testing.assert_array_equal(series.values[:, 0], one)
    np.testing.assert_array_equal(series.n, [1, 2, 2, 2, 1])
    assert series.values[2, 1] == pytest.approx((two[0] + two[1]) / 2)
    assert series.mean[3] == pytest.approx((one[3] + two[1]) / 2)
    assert np.isnan(series.band[0]).all()  # two seeds


def test_metric_series_keeps_the_mean(tmp_path: Path) -> None:
    small(tmp_path / "1")
    (run,), _ = read_runs([tmp_path])
    series = metric_series([run], "kl")
    assert series is not None and series.env_step[-1] == run.training["frame"][-1]
    known = run.training["kl"][np.isfinite(run.training["kl"])]
    assert known.min() <= series.mean.min() and series.mean.max() <= known.max()
    counts = np.histogram(
        run.training["frame"][np.isfinite(run.training["kl"])],
        np.append(-1, series.env_step) + 0.5,
    )[0]
    assert (series.mean * counts).sum() / counts.sum() == pytest.approx(known.mean())
    assert metric_series([run], "no such column") is None


def test_config_of_a_run_in_training_is_left_alone(tmp_path: Path) -> None:
    run = small(tmp_path / "1")
    before = {path: path.read_bytes() for path in run.iterdir()}
    read_runs([tmp_path])
    assert {path: path.read_bytes() for path in run.iterdir()} == before
