"""`sibe embed` and `sibe probe`: planted representations are found out, bad input is told."""

from __future__ import annotations

import csv
import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sibe.analysis.representation import embedding
from sibe.analysis.representation.compared_runs import load_runs, untrained_agent
from sibe.analysis.representation.embedding import _lay_out, _marks, _measure, in_view
from sibe.analysis.representation.grid import to_grid
from sibe.analysis.representation.latents import low_frequencies
from sibe.analysis.representation.pairs import COPIES
from sibe.analysis.representation.probe import KNN, R2, Questions, Score, ask, probe
from sibe.analysis.representation.probe_dataset import ProbeDataset, collect, pose_features
from sibe.analysis.representation.probe_table import as_csv, as_text
from sibe.cli import main as cli
from sibe.config.schema import EnvConfig
from sibe.errors import UserError
from sibe.policy.load import load_policy

GREEN, RED = (0, 158, 115), (213, 94, 0)


def call(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        cli.main(list(map(str, args)))
    return int(stop.value.code or 0), *capsys.readouterr()


class Chance:
    """Plays at random."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def reset(self) -> None:
        pass

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self.rng.uniform(-1, 1, 1).astype(np.float32)


class Planted:
    """An agent whose representation of the n-th observation it is shown is the n-th code."""

    def __init__(self, **codes: np.ndarray) -> None:
        self.codes, self.shown = codes, 0

    def embed(self, obs: np.ndarray) -> dict[str, torch.Tensor]:
        rows = slice(self.shown, self.shown + len(obs))
        self.shown += len(obs)
        return {name: torch.from_numpy(code[rows]) for name, code in self.codes.items()}


@pytest.fixture(scope="module")
def moments() -> ProbeDataset:
    config = EnvConfig(background="noise", size=16, action_repeat=25)
    return collect(config, Chance(), episodes=20, each=30, seed=0)


@pytest.fixture(scope="module")
def asked(moments: ProbeDataset) -> Questions:
    return ask(moments, np.random.default_rng(0))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small runs, sibe and none, of different stacks; and one seen by another camera."""
    root = tmp_path_factory.mktemp("runs")
    line = "train --preset debug --env-steps 600 --eval-episodes 1 --threads 1 --no-video"
    for name, stack in (("sibe", "3"), ("none", "1")):
        more = ("--method", name, "--stack", stack, "--background", "noise")
        with pytest.raises(SystemExit) as stop:
            cli.main([*line.split(), *more, "--out", str(root / name)])
        assert not stop.value.code
    shutil.copytree(root / "none", root / "aside")
    config = json.loads((root / "none" / "config.json").read_text())
    config["env"]["camera"] = 1
    (root / "aside" / "config.json").write_text(json.dumps(config))
    return root


def group_values(scores: list[Score]) -> dict[tuple[str, str, str], float]:
    return {
        (score.latent, score.measure, score.group): score.estimate.value
        for score in scores
        if not score.quantity
    }


def test_a_planted_code_is_found_and_noise_is_not(asked: Questions) -> None:
    rng = np.random.default_rng(1)
    targets = {target.group: target.values for target in asked.targets}
    scale = {group: values.std(axis=0) for group, values in targets.items()}
    pose, behind = targets["positions"] / scale["positions"], targets["background"]
    planted = Planted(
        robot=pose @ rng.normal(size=(pose.shape[1], 8)),
        scene=behind @ rng.normal(size=(16, 16)),
        c=rng.normal(size=(len(pose), 8)),
    )
    scores = probe("planted", planted, asked, rng, stack=3)
    value = group_values(scores)
    assert value["robot", R2, "positions"] > 0.99
    assert value["scene", R2, "background"] > 0.99
    assert max(abs(value["c", R2, group]) for group in targets) < 0.06
    assert abs(value["robot", R2, "background"]) < 0.06
    assert abs(value["scene", R2, "positions"]) < 0.06
    # The cart's place and the pole's angle together are most of the task's own vector.
    assert value["robot", R2, "task"] > 0.5
    chance = next(score.chance for score in scores if score.measure == KNN)
    assert chance == 10 / (len(pose) - 1)
    assert value["robot", KNN, "pose"] > 10 * chance
    assert value["scene", KNN, "background"] > 10 * chance
    for other in (("robot", "background"), ("scene", "pose"), ("c", "pose"), ("c", "background")):
        assert abs(value[other[0], KNN, other[1]] - chance) < 0.01
    for score in scores:
        assert score.estimate.low <= score.estimate.high


def test_backgrounds_are_exchanged_and_stay_in_their_fold(
    moments: ProbeDataset, asked: Questions
) -> None:
    assert moments.pictures is not None
    background = next(target for target in asked.targets if target.group == "background")
    # Noise is fresh in every frame, so its coarse content tells whose it is.
    own = low_frequencies(moments.pictures[:, -1])
    owner = np.array([int(((own - row) ** 2).sum(axis=1).argmin()) for row in background.values])
    assert sorted(owner.tolist()) == list(range(len(own)))
    assert (owner == np.arange(len(own))).mean() < 0.1
    np.testing.assert_array_equal(asked.fold[owner], asked.fold)
    np.testing.assert_array_equal(background.cluster, moments.episode[owner])
    # No episode is in two folds, and each fold has the policy's as well as random ones.
    for fold in range(5):
        inside = set(moments.episode[asked.fold == fold].tolist())
        assert not inside & set(moments.episode[asked.fold != fold].tolist())
        assert {number % 2 for number in inside} == {0, 1}


def test_the_grid_tells_pose_from_background(moments: ProbeDataset, tmp_path: Path) -> None:
    layout = _lay_out(moments, np.random.default_rng(0))
    assert len(layout.poses) == 300 and len(set(layout.poses.tolist())) == 300 // COPIES
    # Laid out by pose alone (its first two features), and by the identity of the background.
    pose = pose_features(moments)[layout.poses][:, :2]
    place = np.random.default_rng(0).uniform(size=(len(moments.episode), 2))[layout.backgrounds]
    jitter = np.random.default_rng(1).normal(0, 1e-6, (300, 2))
    by_pose, by_scene = to_grid(pose + jitter, 20, 15), to_grid(place + jitter, 20, 15)
    of_pose = _measure(tmp_path, "z", by_pose, layout)
    of_scene = _measure(tmp_path, "z", by_scene, layout)
    assert of_pose.same_pose < 3 < 6 < of_pose.same_background
    assert of_scene.same_background < 3 < 6 < of_scene.same_pose
    pairs = list(itertools.combinations(by_pose.tolist(), 2))
    brute = np.mean([np.hypot(a[0] - b[0], a[1] - b[1]) for a, b in pairs])
    assert of_pose.any_two == pytest.approx(brute)
    green, red = (mark.pair for mark in _marks(moments, layout, by_pose, of_pose))
    assert layout.poses[green[0]] == layout.poses[green[1]]
    assert layout.backgrounds[green[0]] != layout.backgrounds[green[1]]
    assert layout.backgrounds[red[0]] == layout.backgrounds[red[1]]
    assert layout.poses[red[0]] != layout.poses[red[1]]
    robot = moments.robot[layout.poses]
    assert robot[[*green, *red]].min() >= np.median(robot)
    # The cart leaves the picture, but not in the grid.
    assert moments.robot.min() == 0 < robot.min()


def test_a_robot_out_of_view_is_shown_only_where_nothing_else_is() -> None:
    robot = np.array([0.0, 0.02, 0.003, 0.02, 0.01, 0.0])
    assert in_view(robot, 2).tolist() == in_view(robot, 3).tolist() == [1, 3, 4]
    assert in_view(robot, 4).tolist() == [1, 2, 3, 4]
    assert in_view(np.full(3, np.nan), 2).tolist() == [0, 1, 2]


def test_embed_writes_a_grid_for_z_and_one_for_c(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "grid.png"
    code, said, _ = call(capsys, "embed", runs / "sibe", "--out", out, "--episodes", 4)
    assert code == 0
    assert [path.name for path in sorted(out.parent.iterdir())] == ["grid.png", "grid_c.png"]
    assert "same pose" in said
    pixels = np.asarray(Image.open(out).convert("RGB")).astype(int)
    assert pixels.shape[1] > 20 * 84 and pixels.shape[0] > 15 * 84
    for color in (GREEN, RED):  # two frames in the grid and two below it, at least
        assert (np.abs(pixels - color).max(axis=-1) < 8).sum() > 1000


def test_a_clean_grid_of_c_alone_has_no_marks(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedding, "tsne", lambda latents, seed: latents[:, :2])
    out = tmp_path / "grid.png"
    line = ("embed", runs / "none", "--out", out, "--episodes", 6, "--background", "clean")
    code, said, _ = call(capsys, *line)
    assert code == 0
    assert said == f"wrote {out} (c)\n"
    assert list(tmp_path.iterdir()) == [out]
    pixels = np.asarray(Image.open(out).convert("RGB")).astype(int)
    assert not (np.abs(pixels - GREEN).max(axis=-1) < 8).any()


def test_probe_compares_runs_of_other_stacks(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    line = ("probe", runs / "sibe", "--compare", runs / "none", "--episodes", 10, "--out", out)
    code, said, _ = call(capsys, *line)
    assert code == 0
    assert sorted(path.name for path in out.iterdir()) == ["probe.csv", "probe.png"]
    with (out / "probe.csv").open() as file:
        rows = list(csv.DictReader(file))
    latents = [*dict.fromkeys((row["run"], row["latent"]) for row in rows)]
    ours = [(run, latent) for run in ("untrained", "sibe, seed 1") for latent in ("z", "c")]
    assert latents == [*ours, ("none, seed 1", "c")]
    means = [row for row in rows if row["quantity"] == "mean"]
    assert len(means) == 6 * len(latents)
    for row in rows:
        assert float(row["low"]) <= float(row["high"]) <= 1
    for run, latent in latents:
        assert (
            sum(line.startswith(run) and f"  {latent} " in line for line in said.splitlines()) == 2
        )
    assert said.count("knowing nothing") == 2
    assert Image.open(out / "probe.png").width > 1000


def test_untrained_is_the_run_before_its_first_update(runs: Path) -> None:
    policy = load_policy(runs / "sibe")
    first, again = untrained_agent(policy), untrained_agent(policy)
    states = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 9), dtype=np.uint8)
    for name, value in first.embed(states).items():
        assert torch.equal(again.embed(states)[name], value)
        assert not torch.equal(policy.agent.embed(states)[name], value)


def test_equal_names_are_told_apart_by_their_path(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "sibe", tmp_path / "copy")
    labels = list(load_runs([runs / "sibe", tmp_path / "copy"], device="cpu"))
    assert labels == [f"sibe, seed 1 ({path})" for path in (runs / "sibe", tmp_path / "copy")]
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    config["env"]["background"] = "clean"
    (tmp_path / "copy" / "config.json").write_text(json.dumps(config))
    labels = list(load_runs([runs / "sibe", tmp_path / "copy"], device="cpu"))
    assert labels == ["sibe, seed 1, noise", "sibe, seed 1, clean"]


@pytest.mark.parametrize(("name", "value"), [("supersample", 2), ("keep_floor", True)])
def test_runs_that_saw_other_pictures_are_not_compared(
    name: str, value: Any, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "sibe", tmp_path / "copy")
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    config["env"][name] = value
    (tmp_path / "copy" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=f"its {name} is {value}, not"):
        load_runs([runs / "sibe", tmp_path / "copy"], device="cpu")


def test_tables_hold_the_same_numbers(asked: Questions) -> None:
    codes = np.random.default_rng(0).normal(size=(len(asked.fold), 4))
    scores = probe("run", Planted(c=codes), asked, np.random.default_rng(0), stack=3)
    rows = list(csv.DictReader(as_csv(scores).splitlines()))
    assert [float(row["value"]) for row in rows] == [score.estimate.value for score in scores]
    text = as_text(scores)
    shown = [line for line in text.splitlines() if line.startswith("run ")]
    means = [score.estimate.value for score in scores if not score.quantity]
    found = [float(value) for value in re.findall(r"(-?\d\.\d\d) \[", "\n".join(shown))]
    assert len(shown) == 2 and len(means) == 6
    np.testing.assert_allclose(found, means, atol=0.0051)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("embed {}/nowhere --out {}/x.png", "there is no run directory"),
        ("embed {}/empty --out {}/x.png", "is not a run directory"),
        ("embed {}/young --out {}/x.png", "has no checkpoint yet"),
        ("embed RUNS/sibe --out {}/x.jpg", ".png"),
        ("embed RUNS/sibe --out {}/file/x.png", "is a file"),
        ("embed RUNS/sibe --out {}/x.png --episodes 0", "--episodes must be at least 1"),
        ("embed RUNS/sibe --out {}/x.png --episodes 1", "play more with --episodes"),
        ("embed RUNS/sibe --out {}/x.png --background nois", "did you mean noise?"),
        ("embed RUNS/sibe", "--out"),
        ("probe {}/young --out {}/x", "has no checkpoint yet"),
        ("probe RUNS/sibe --compare {}/nowhere --out {}/x", "there is no run directory"),
        ("probe RUNS/sibe --compare RUNS/aside --out {}/x", "its camera is 1, not None"),
        ("probe RUNS/sibe --compare RUNS/sibe --out {}/x", "names a run twice"),
        ("probe RUNS/sibe --out {}/file", "is a file"),
        ("probe RUNS/sibe --out {}/x --episodes 9", "--episodes must be at least 10"),
        ("probe RUNS/sibe --out {}/x --background video --clips {}/empty", "not a clip bank"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    line: str, words: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "young").mkdir()
    (tmp_path / "file").write_text("precious")
    shutil.copy(runs / "sibe" / "config.json", tmp_path / "young")
    words_of_line: list[Any] = line.replace("{}", str(tmp_path)).replace("RUNS", str(runs)).split()
    code, _, err = call(capsys, *words_of_line)
    assert (code, err.count("\n")) == (2, 1), err
    assert words in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "young"]
