"""A run with several sensors: killed it ends the same, and every command takes it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sibe
from sibe.cli import main as cli
from sibe.envs.sensors import Sensors
from sibe.errors import UserError
from sibe.logs.csv_log import WALL_CLOCK_COLUMNS
from sibe.policy.distorted_sensors import DistortedSensors
from sibe.policy.dropped_sensors import with_drops
from sibe.policy.observations import ObservationError
from sibe.policy.sensor_amounts import parse_shares, parse_sizes
from sibe.policy.trained_policy import TrainedPolicy
from sibe.storage import checkpoint

STEPS = 4000
FLAGS = [
    *("--preset", "debug", "--task", "ball_in_cup_catch", "--background", "noise"),
    *("--sensors", "pixels", "state", "--sensor-dropout", "0.3", "--sibe.sensors", "cross"),
    *("--env-steps", str(STEPS), "--checkpoint-every", "1000", "--eval-every", "2000"),
    # a ring smaller than the run, so that it wraps and episode files are deleted
    *("--replay-capacity", "120", "--action-repeat", "20", "--threads", "1", "--no-video"),
]


def start(out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sibe", "train", *FLAGS, "--out", str(out)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(out: Path) -> None:
    process = start(out)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0, text


def rows(path: Path) -> list[list[str]]:
    header, *rest = [line.split(",") for line in path.read_text().splitlines()]
    keep = [i for i, name in enumerate(header) if name not in WALL_CLOCK_COLUMNS]
    return [[row[i] for i in keep] for row in (header, *rest)]


def weights(run: Path) -> dict[str, torch.Tensor]:
    found = checkpoint.load_newest(run / "checkpoint", map_location="cpu", report=print)
    assert found is not None and found[0] == STEPS
    encoder: dict[str, torch.Tensor] = found[1]["agent"]["encoder"]
    return {**encoder, "generator": found[1]["agent"]["generator"]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sensors") / "whole"
    finish(out)
    return out


@pytest.fixture(scope="module")
def policy(run: Path) -> TrainedPolicy:
    return sibe.load_policy(run, device="cpu")


def test_killed_it_ends_the_same(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    for after in (1000, 3000):
        process = start(out)
        while max(checkpoint.list_steps(out / "checkpoint"), default=0) < after:
            assert process.poll() is None, "it ended before the kill"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finish(out)
    for name in ("train.csv", "eval.csv", "eval_episodes.csv"):
        assert rows(run / name) == rows(out / name), name
    first, second = weights(run), weights(out)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert {p.name for p in (run / "replay").iterdir()} == {
        p.name for p in (out / "replay").iterdir()
    }


def command(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        cli.main(list(args))
    return int(stop.value.code or 0)


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    capsys.readouterr()
    assert command(*args) == 0
    return capsys.readouterr().out.splitlines()


def test_evaluation_drops_readings_and_says_so(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ("eval", str(run), "--episodes", "1")
    dropped = printed(capsys, *line, "--drop", "pixels=0.3", "--drop", "state=1")
    assert "30% of pixels missing, 100% of state missing" in dropped[-1]
    assert dropped == printed(capsys, *line, "--drop", "pixels=0.3", "--drop", "state=1")


def test_evaluation_freezes_and_disturbs_sensors_and_says_so(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ("eval", str(run), "--episodes", "1", "--freeze", "pixels=0.5", "--noisy", "state=0.1")
    failing = printed(capsys, *line)
    assert "(noise, 50% of pixels frozen, noise of 0.1 on state)" in failing[-1]
    assert failing == printed(capsys, *line)


class Eye:
    """A policy that keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def reset(self) -> None:
        pass

    def act(self, obs: Any, generator: Any, episodes: Any = None, missing: Any = None) -> Any:
        self.shown.append(obs)
        return np.zeros((1, 1), np.float32)


def test_a_frozen_sensor_repeats_what_it_showed_in_its_own_episode() -> None:
    eye = Eye()
    policy = DistortedSensors(eye, {"state": 1.0}, {}, 0)
    policy.reset()
    for t, episodes in enumerate(((0, 1, 2), (0, 2), (2,))):
        state = np.array([[10 * t + e] for e in episodes], np.float32)
        policy.act({"state": state, "pixels": state.astype(np.uint8)}, None, episodes)
    assert [shown["state"][:, 0].tolist() for shown in eye.shown] == [[0, 1, 2], [0, 2], [2]]
    assert eye.shown[1]["pixels"][:, 0].tolist() == [10, 12]  # the other sensor goes on
    policy.reset()
    policy.act({"state": np.array([[7.0]], np.float32)}, None)
    assert eye.shown[-1]["state"].item() == 7


def test_frozen_steps_are_as_many_as_asked_for() -> None:
    eye = Eye()
    policy = DistortedSensors(eye, {"pixels": 0.3}, {}, 0)
    policy.reset()
    for t in range(250):
        policy.act(np.full((8, 1, 1, 3), t, np.uint8), None)
    steps = np.stack(eye.shown)[:, :, 0, 0, 0]
    assert (np.diff(steps.astype(int), axis=0) == 0).mean() == pytest.approx(0.3, abs=0.03)


def test_noise_has_the_size_asked_for_and_keeps_the_type() -> None:
    eye = Eye()
    policy = DistortedSensors(eye, {}, {"pixels": 0.1, "state": 0.5}, 0)
    obs = {"pixels": np.full((4, 30, 30, 3), 128, np.uint8), "state": np.zeros((4, 900), "f4")}
    policy.act(obs, None)
    pixels, state = eye.shown[0]["pixels"], eye.shown[0]["state"]
    assert pixels.dtype == np.uint8 and state.dtype == np.float32
    assert pixels.std() == pytest.approx(25.5, rel=0.05)
    assert state.std() == pytest.approx(0.5, rel=0.05)
    assert (obs["state"] == 0).all()


def test_an_export_knows_the_sensors(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "export")
    assert command("export", str(run), "--out", out, "--episodes", "1") == 0
    card = (tmp_path / "export" / "README.md").read_text()
    assert "a dict of pixels, state" in card
    one, two = (printed(capsys, "eval", str(path), "--episodes", "1") for path in (run, out))
    assert one == two


def test_the_probe_tells_what_c_knows_without_each_sensor(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(
        capsys, *("probe", str(run), "--episodes", "10", "--out", str(tmp_path), "--no-untrained")
    )
    for words in ("sibe, seed 1 ", "sibe, seed 1, no pixels", "sibe, seed 1, no state"):
        assert any(line.startswith(words) for line in lines), words

    def known(label: str) -> float:
        """R² of velocities that c tells; proprioception has half of them."""
        row = next(line for line in lines if line.startswith(label) and "  c " in line)
        return float(row.split("[")[1].split("]")[1])

    assert known("sibe, seed 1, no pixels") > known("sibe, seed 1, no state") + 0.1


def test_another_set_of_sensors_is_another_run(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = [word for word in FLAGS if word not in ("state", "--sensor-dropout", "0.3")]
    other = [word for word in other if word not in ("--sibe.sensors", "cross")]
    assert command("train", *other, "--out", str(run)) == 2
    error = capsys.readouterr().err.strip()
    assert "sensors" in error and len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "changes", [{"sensors": ["pixels"]}, {"cameras": [0, 1]}, {"sensors": ["state"]}]
)
def test_a_checkpoint_of_other_sensors_is_refused_in_one_line(
    run: Path, changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "edited"
    shutil.copytree(run, out)
    config = json.loads((out / "config.json").read_text())
    config["env"] = {**config["env"], **changes, "sensor_dropout": 0.0}
    config["method_config"]["sensors"] = "joint"
    config["schedule"]["env_steps"] += 1000
    (out / "config.json").write_text(json.dumps(config))
    for line in (("eval", str(out)), ("train", "--resume", str(out))):
        capsys.readouterr()
        assert command(*line) == 2
        error = capsys.readouterr().err.strip()
        assert ("sensors" in error or "cameras" in error) and len(error.splitlines()) == 1


def test_a_task_with_another_state_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("eval", str(run), "--task", "acrobot_swingup") == 2  # another number of actions
    assert command("eval", str(run), "--task", "finger_spin") == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.endswith("has a state of 6 numbers, the agent was trained with 4")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["lidar=1"], "no sensor 'lidar'"),
        (["pixels=2"], "a share from 0 to 1"),
        (["pixels=x"], "a share from 0 to 1"),
        (["state"], "no sensor 'state'"),
        (["pixels=0.3", "pixels=0.5"], "pixels is named twice"),
    ],
)
def test_bad_drops_are_refused(words: list[str], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        parse_shares("--drop", words, Sensors())


@pytest.mark.parametrize(
    "word",
    # 1e39 is infinite in float32: actions would be NaN, which the simulator does not survive
    ["pixels", "pixels=-1", "pixels=inf", "pixels=nan", "pixels=x", "pixels=1e39", "state=1"],
)
def test_noise_needs_a_size_and_a_sensor(word: str) -> None:
    with pytest.raises(UserError, match=f"^--noisy {word}: ") as caught:
        parse_sizes("--noisy", [word], Sensors())
    assert "\n" not in str(caught.value)


def test_drops_name_sensors_and_pixels_are_all_cameras() -> None:
    cameras = Sensors(state=True, cameras=(0, 2))
    assert parse_shares("--drop", ["pixels=0.3", "state"], cameras) == {
        **{"pixels_0": 0.3, "pixels_2": 0.3},
        "state": 1.0,
    }


def state_of(policy: TrainedPolicy, rows: int | None = None) -> dict[str, Any]:
    env = policy.make_env()
    state, _ = env.reset(seed=1)
    env.close()
    return state if rows is None else {n: np.stack([part] * rows) for n, part in state.items()}


def test_a_policy_acts_on_dicts_and_without_a_sensor(policy: TrainedPolicy) -> None:
    state, batch = state_of(policy), state_of(policy, 3)
    action = policy.act(state)
    assert action.shape == (2,) and policy.act(batch).shape == (3, 2)
    np.testing.assert_allclose(policy.act(batch)[1], action, atol=1e-5)
    blind = policy.act({"state": state["state"]})
    assert (blind != action).any()
    # What the missing sensor would have shown makes no difference.
    agent: Any = policy.agent
    missing = np.array([[True, False]])
    given = {name: part[None] for name, part in state.items()}
    other = {**given, "pixels": 255 - given["pixels"]}
    np.testing.assert_array_equal(agent.act(other, None, missing)[0], blind)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s["pixels"], "a dict of its sensors pixels, state"),
        (lambda s: {**s, "lidar": s["state"]}, "no sensor 'lidar'"),
        (lambda s: {}, "no reading"),
        (lambda s: {**s, "state": s["state"].astype(float)}, "the sensor state gives float32 [4]"),
        (lambda s: {**s, "pixels": s["pixels"] / 255}, "not float64"),
        (lambda s: {**s, "state": s["state"][None]}, "batches of different sizes"),
    ],
)
def test_a_policy_refuses_other_readings(policy: TrainedPolicy, change: Any, words: str) -> None:
    with pytest.raises(ObservationError) as caught:
        policy.act(change(state_of(policy)))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_nothing_missing_is_the_policy_itself_and_all_missing_is_blind(
    policy: TrainedPolicy,
) -> None:
    batch = state_of(policy, 3)
    plain = policy.agent.policy().act(batch, None)
    np.testing.assert_allclose(with_drops(policy, {}, 0).act(batch, None), plain, atol=1e-6)
    blind = with_drops(policy, {"pixels": 1.0, "state": 1.0}, 0)
    other = {name: part[::-1] // 2 for name, part in batch.items()}
    np.testing.assert_array_equal(blind.act(batch, None), blind.act(other, None))
