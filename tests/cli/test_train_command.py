"""`sibe train` and `sibe eval` from the outside: bad input, guards, and what a run leaves."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sibe
from sibe.catalogue.presets import PRESETS, preset_config
from sibe.catalogue.run_config import from_json, to_json
from sibe.cli import main as cli
from sibe.cli import train as train_command
from sibe.errors import UserError
from sibe.logs.csv_log import read_csv
from sibe.storage import checkpoint

SHORT = ("--preset", "debug", "--env-steps", "2000", "--threads", "1")


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(list(args))
    return int(stop.value.code or 0)


BAD = [
    ("--task", "cartpole_swingop"),
    ("--task", "NoSuchEnv-v0"),
    ("--background", "nois"),
    ("--method", "sib"),
    ("--preset", "cp"),
    ("--device", "gpu"),
    ("--device", "cuda:0"),
    ("--seed", "-1"),
    ("--seed", "one"),
    ("--threads", "-1"),
    ("--threads", "1000000"),
    ("--encoder.method-share", "nan"),
    ("--encoder.method-share", "-1"),
    ("--sac.hidden", "1000000"),
    ("--sac.batch", "1000000000000"),
    ("--sac.batch", "1e9"),
    ("--method", "plan2explore", "--plan2explore.batch", "1e7"),
    ("--size", "0"),
    ("--size", "8"),
    ("--size", "-84"),
    ("--stack", "0"),
    ("--action-repeat", "0"),
    ("--camera", "99"),
    ("--clips", "no/such/bank", "--background", "video"),
    ("--clips", "no/such/bank"),
    ("--clips", "no/such/bank", "--background", "noise"),
    ("--loop-frames", "37"),
    ("--loop-frames", "37", "--background", "video_random"),
    ("--task", "CartPole-v1"),
    ("--env-steps", "0"),
    ("--initial-steps", "0"),
    ("--initial-steps", "1"),
    ("--replay-capacity", "3"),
    ("--replay-capacity", "100000000000"),
    ("--eval-every", "0"),
    ("--eval-episodes", "0"),
    ("--checkpoint-every", "0"),
    ("--track", "mlflow"),
    ("--encoder.features", "0"),
    ("--encoder.filters", "-4"),
    ("--encoder.strides", "2", "1", "0", "1"),
    ("--encoder.tau", "0"),
    ("--encoder.tau", "1.5"),
    ("--encoder.lr", "nan"),
    ("--encoder.lr", "-1e-3"),
    ("--sac.hidden", "0"),
    ("--sac.batch", "1"),
    ("--sac.chunk", "0"),
    ("--sac.method-batch", "0"),
    ("--sac.transitions", "some"),
    ("--sac.lr", "0"),
    ("--sac.lr", "inf"),
    ("--sac.temperature-lr", "0"),
    ("--sac.init-temperature", "-0.1"),
    ("--sac.discount", "1.01"),
    ("--sac.tau", "-1"),
    ("--sac.actor-every", "0"),
    ("--sac.target-every", "0"),
    ("--sac.shift", "-4"),
    ("--sibe.alpha", "-1"),
    ("--sibe.intrinsic", "nan"),
    ("--sibe.latent", "0"),
    ("--sibe.hidden", "0"),
    ("--sibe.tau", "0"),
    ("--sibe.lr", "0"),
    ("--sibe.negatives", "few"),
    ("--sibe.kl-reduction", "max"),
    ("--resume", "no/such/run"),
    ("--no-such-flag", "1"),
    ("--seed",),
]


@pytest.mark.parametrize("flags", BAD, ids=" ".join)
def test_bad_values_get_one_line_and_exit_2(
    flags: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = () if flags[0] == "--resume" else (*SHORT, "--out", str(tmp_path / "run"))
    assert run("train", *out, *flags) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1, error
    assert error.startswith("sibe: ") and "Traceback" not in error
    assert list(tmp_path.iterdir()) == []  # nothing is written until the environment stands


def test_out_of_reach_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path below a regular file cannot be made, whoever you are."""
    (tmp_path / "file").write_text("")
    assert run("train", *SHORT, "--out", str(tmp_path / "file" / "run")) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1 and "file" in error


def test_non_finite_loss_stops_with_the_metric_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    # A learning rate that is far too large; the first checkpoint comes before learning begins.
    wild = ("--sac.lr", "1e30", "--initial-steps", "200", "--checkpoint-every", "1000")
    assert run("train", *SHORT, *wild, "--out", str(out)) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert re.search(r"(critic|actor|method)_loss became non-finite at env_step 1\d00", error)
    found = checkpoint.load_newest(out / "checkpoint", map_location="cpu", report=print)
    assert found is not None and found[0] == 1000
    assert all(torch.isfinite(p).all() for p in found[1]["agent"]["actor"].values())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, bool]]:
    """A real file system of 3 MB where mounting is allowed, else a folder."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True).returncode == 0
    yield disk, mounted
    if mounted:
        subprocess.run(["umount", str(disk)], check=True)


def test_full_disk_is_reported_and_harms_nothing(small_disk: tuple[Path, bool]) -> None:
    disk, mounted = small_disk
    # Where nothing can be mounted, files of more than 1 MB fail instead: the first episode.
    size = "32" if mounted else "64"
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
    code = (
        "import resource, signal\n"
        "import sibe.training.run as t\n"
        "t.check_resources = lambda *a: None\n"  # let it start, and run into the wall
        f"{'' if mounted else limit}"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from sibe.cli.main import main\n"
        f"main(['train', *{SHORT!r}, '--size', {size!r}, '--out', {str(disk / 'run')!r},"
        " '--checkpoint-every', '1000', '--replay-capacity', '2000', '--env-steps', '9000',"
        " '--initial-steps', '5000', '--eval-every', '100000'])\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr
    folder = disk / "run" / "checkpoint"
    if mounted:
        assert checkpoint.load_newest(folder, map_location="cpu", report=print) is not None
    else:
        assert not checkpoint.list_steps(folder)


def test_a_refused_start_does_not_bind_the_next(tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "run"))
    assert run("train", *SHORT, *out, "--camera", "99") == 2
    assert run("train", *SHORT, *out) == 0
    assert run("train", *SHORT, *out, "--seed", "7") == 2  # now there is something to lose


def test_a_run_keeps_the_threads_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", str(tmp_path / "run"), "--threads", "0")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert run("train", *SHORT, *out) == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert run("train", *SHORT, *out) == 0
    assert "already finished" in capsys.readouterr().out


def test_broken_weights_are_named_before_they_act(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = ("--encoder.lr", "1e30", "--initial-steps", "2")
    assert run("train", *SHORT, *wild, "--out", str(tmp_path / "run")) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1 and "non-finite" in error


def test_a_run_that_cannot_fit_on_disk_is_refused_up_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage(tmp_path)
    tiny = type(usage)(usage.total, usage.total, 10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: tiny)
    assert run("train", *SHORT, "--out", str(tmp_path / "run")) == 2
    assert "the run needs 8 MB of disk" in capsys.readouterr().err


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    config = preset_config("debug", task="walker_walk")
    from dataclasses import replace

    schedule = replace(config.schedule, env_steps=2000)
    sibe.train(config=replace(config, schedule=schedule), threads=1, out=out)
    return out


def test_a_run_leaves_what_is_documented(finished: Path) -> None:
    for name in ("config.json", "meta.json", "train.csv", "eval.csv", "curve.png"):
        assert (finished / name).stat().st_size > 0, name
    train = read_csv(finished / "train.csv")
    evaluation = read_csv(finished / "eval.csv")
    every = read_csv(finished / "eval_episodes.csv")
    assert list(train["frame"]) == [1000, 2000] and list(train["step"]) == [500, 1000]
    assert list(evaluation["frame"]) == [1000, 2000]
    for i, frame in enumerate(evaluation["frame"]):
        returns = every["episode_reward"][every["frame"] == frame]
        assert evaluation["episode_reward"][i] == pytest.approx(returns.mean())
    for name in ("kl", "infonce", "bonus", "critic_loss", "temperature"):
        assert np.isfinite(train[name][-1]), name
    # one gradient update per agent step from the first learning step on
    assert train["updates"][-1] == 1000 - 50 + 1
    assert list((finished / "video").glob("*.mp4"))
    assert list((finished / "tensorboard").iterdir())
    meta = json.loads((finished / "meta.json").read_text())
    assert meta


def test_eval_of_a_run_elsewhere_and_with_video(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    video = tmp_path / "out.mp4"
    assert run("eval", str(finished), "--episodes", "2", "--video", str(video)) == 0
    first = capsys.readouterr().out
    assert "walker_walk (clean)" in first and video.stat().st_size > 0
    assert run("eval", str(finished), "--episodes", "2") == 0
    assert (
        capsys.readouterr().out.splitlines()[:3] == first.splitlines()[:3]
    )  # same seed, same result
    assert run("eval", str(finished), "--episodes", "1", "--background", "noise") == 0
    assert "walker_walk (noise)" in capsys.readouterr().out
    assert run("eval", str(finished), "--episodes", "1", "--task", "cheetah_run") == 0
    capsys.readouterr()
    for bad in (
        ("--task", "cartpole_swingup"),
        ("--episodes", "0"),
        ("--background", "fog"),
        ("--task", "walker_wolk"),
        ("--video", str(tmp_path / "film.avi")),
        ("--video-size", "480"),
        ("--video", str(tmp_path / "film.mp4"), "--video-size", "2"),
    ):
        assert run("eval", str(finished), *bad) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert run("eval", str(tmp_path)) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_clips_have_no_effect_without_a_video(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ("eval {}", "probe {} --out {}/x", "embed {} --out {}/x.png"):
        words = line.replace("{}", str(finished), 1).replace("{}", str(tmp_path))
        assert run(*words.split(), "--clips", "bank") == 2
        assert "--clips has no effect with --background clean" in capsys.readouterr().err


def test_an_export_is_not_trained_into(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "export"
    assert run("export", str(finished), "--out", str(out), "--episodes", "1") == 0
    assert "over 1 episode\n" in capsys.readouterr().out
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    same = ("--task", "walker_walk", "--preset", "debug", "--env-steps", "2e3", "--threads", "1")
    assert run("train", *same, "--out", str(out)) == 2
    error = capsys.readouterr().err
    assert "is an exported policy (it has README.md, config.json, model.safetensors" in error
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_resume_takes_more_env_steps_and_a_tracker_alone(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "--resume", str(finished), "--env_steps=1e3") == 2
    assert "a run of 2000 env steps, which can be extended but" in capsys.readouterr().err
    assert run("train", "--resume", str(finished), "--env-steps", "2e3") == 0
    assert "already finished at env_step 2000" in capsys.readouterr().out
    assert run("train", "--resume", str(finished), "--seed", "2") == 2
    assert "leave out --seed" in capsys.readouterr().err


def test_without_a_preset_the_run_that_is_there_keeps_its_own(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `make train` (preset cpu) and then the same line without a preset, with a GPU."""
    line = ("--task", "walker_walk", "--env-steps", "2000", "--out", str(finished))
    assert run("train", *line) == 0
    said = capsys.readouterr().out
    assert f"preset debug (that of the run in {finished})" in said and "already finished" in said


def test_train_needs_no_flag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[Any] = []
    monkeypatch.setattr("sibe.training.run.train", lambda config, out: asked.append(config))
    assert run("train") == 0
    assert [config.env.task for config in asked] == ["cartpole_swingup"]


@pytest.mark.parametrize(
    ("flags", "folder"),
    [
        (["--sensors", "pixels", "state"], "cartpole_swingup-clean-pixels+state"),
        (["--sensors", "state", "--seed", "1"], "cartpole_swingup-clean-state"),
        (["--cameras", "-1", "0"], "cartpole_swingup-clean-pixels_-1+pixels_0"),
        ([], "cartpole_swingup-clean"),
    ],
)
def test_without_a_preset_the_run_that_is_there_is_the_one_with_these_sensors(
    flags: list[str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train_command, "has_begun", lambda files: True)
    path = tmp_path / "runs" / folder / "sibe" / "seed1"
    path.mkdir(parents=True)
    (path / "config.json").write_text('{"preset": "debug"}')
    chosen, why = train_command._choose_preset(flags, "cartpole_swingup", "sibe", "clean")
    assert chosen == "debug" and f"{folder}/sibe" in why


def test_load_policy_acts_on_single_states_and_batches(finished: Path) -> None:
    policy = sibe.load_policy(finished)
    env = sibe.make_env("walker_walk", size=policy.config.env.size)
    obs, _ = env.reset(seed=0)
    action = policy.act(obs)
    assert action.shape == (6,) and env.action_space.contains(action)
    np.testing.assert_allclose(policy.act(np.stack([obs, obs]))[1], action, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(policy.act(obs, explore=True), action)
    env.close()


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", ["none", "sibe"])
def test_config_survives_json(preset: str, method: str) -> None:
    config = preset_config(preset, task="walker_walk", method=method)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_config_of_another_version_is_refused() -> None:
    values = to_json(preset_config("debug"))
    values["sac"]["no_such_field"] = 1
    with pytest.raises(UserError, match="does not fit this version"):
        from_json(values)


def test_paper_preset_is_appendix_a() -> None:
    """The numbers of the paper's two tables and its text."""
    config = preset_config("paper", task="cheetah_run")
    assert (config.env.size, config.env.stack, config.sac.chunk, config.sac.shift) == (84, 3, 2, 4)
    assert config.encoder.lr == config.method_config.lr == 1e-4 and config.sac.lr == 1e-3
    assert config.schedule.replay_capacity == 100_000 and config.schedule.initial_steps == 1000
    assert (config.sac.discount, config.sac.init_temperature) == (0.99, 0.1)
    assert (config.encoder.tau, config.method_config.tau, config.sac.tau) == (0.05, 0.05, 0.01)
    assert (config.method_config.alpha, config.method_config.intrinsic) == (0.1, 0.001)
    assert config.sac.target_every == 2 and config.sac.hidden == config.method_config.hidden == 1024
    table = {
        "ball_in_cup_catch": (4, 256),
        "cartpole_swingup_sparse": (8, 256),
        "reacher_easy": (4, 256),
        "cartpole_swingup": (8, 256),
        "walker_walk": (2, 128),
        "cheetah_run": (4, 256),
    }
    for task, (repeat, batch) in table.items():
        config = preset_config("paper", task=task)
        assert (config.env.action_repeat, config.sac.batch) == (repeat, batch), task


def test_a_run_from_before_a_field_or_the_kernels_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "old"
    assert run("train", *SHORT, "--out", str(out)) == 0
    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        "config.json": lambda values: values["schedule"].pop("eval_process"),
        "meta.json": lambda values: values.update(kernels=not values["kernels"]),
    }
    for name, change in changes.items():
        values = json.loads((out / name).read_text())
        change(values)
        (out / name).write_text(json.dumps(values))
    capsys.readouterr()
    assert run("train", *SHORT, "--out", str(out)) == 0
    said = capsys.readouterr().out
    assert "already finished" in said
    assert "compiled kernels" in said
