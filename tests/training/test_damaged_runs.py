"""Runs with files that are missing, damaged, edited or hostile: nothing is lost or silent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_records import without_wall_clock

import sibe
from sibe.catalogue.run_config import from_json
from sibe.cli import main as cli
from sibe.storage import checkpoint
from sibe.storage.run_directory import RunDirectory
from sibe.storage.run_files import RunFiles
from sibe.training.build import build_parts
from sibe.training.evaluators import make_evaluator
from sibe.training.recorder import Recorder
from sibe.training.trainer import Trainer

LINE = "train --preset debug --method none --env-steps 2000 --eval-episodes 1 --threads 1"
CSV_FILES = ("train.csv", "eval.csv", "eval_episodes.csv")
NEWEST = "checkpoint/checkpoint_000002000.pt"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(list(map(str, args)))
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two episodes, with a checkpoint after each."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    flags = ("--checkpoint-every", "1000", "--no-video", "--out", str(out))
    with pytest.raises(SystemExit) as stop:
        cli.main([*LINE.split(), *flags])
    assert not stop.value.code
    return out


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def csv_files(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in CSV_FILES}


def newest_state(run: Path) -> dict[str, Any]:
    found = checkpoint.load_newest(run / "checkpoint", map_location="cpu", report=print)
    assert found is not None and found[0] == 2000
    return found[1]


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


# --- csv files ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CSV_FILES)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (Path.unlink, "is missing"),
        (lambda path: flip(path, -3), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-5]), "is damaged"),
        (lambda path: path.write_bytes(b""), "line 1 is damaged"),
    ],
)
def test_a_csv_that_does_not_fit_is_put_back_and_named(
    run: Path, call: Call, name: str, damage: Callable[[Path], Any], words: str
) -> None:
    before = csv_files(run)
    damage(run / name)
    code, out, _ = call("train", "--resume", run)
    assert code == 0
    lines = [line for line in out.splitlines() if "put back from the checkpoint" in line]
    assert len(lines) == 1 and name in lines[0] and words in lines[0]
    assert csv_files(run) == before


def test_rows_after_the_checkpoint_are_cut_off_without_a_word(run: Path, call: Call) -> None:
    before = csv_files(run)
    for name in CSV_FILES:
        (run / name).write_bytes(before[name] + b"3000,1\n")
    code, out, _ = call("train", "--resume", run)
    assert code == 0 and "put back" not in out
    assert csv_files(run) == before


def test_the_report_names_the_damaged_line(run: Path, call: Call) -> None:
    shutil.copytree(run, run.parent / "good")
    text = (run / "eval.csv").read_text()
    (run / "eval.csv").write_text(text.replace("2000,", "2001,"))
    code, out, err = call("report", run.parent, "--out", run.parent / "report")
    assert code == 0, err
    number = 1 + next(i for i, line in enumerate(text.splitlines()) if line.startswith("2000,"))
    left_out = next(line for line in out.splitlines() if line.startswith("left out"))
    assert f"eval.csv, line {number} is damaged" in left_out and "--resume" in left_out
    (run / "eval.csv").write_text(text + "3000,")  # a run that goes on has more
    code, out, _ = call("report", run, "--out", run.parent / "report")
    assert code == 0 and "left out" not in out


def test_a_link_to_itself_leaves_one_run_out(run: Path, call: Call) -> None:
    shutil.copytree(run, run.parent / "good")
    (run / "train.csv").unlink()
    (run / "train.csv").symlink_to("train.csv")
    code, out, err = call("report", run.parent, "--out", run.parent / "report")
    assert code == 0, err
    assert "cannot read a file of it (Too many levels of symbolic links)" in out


def test_checkpoints_from_before_there_were_copies_go_on_as_ever(run: Path, call: Call) -> None:
    state = newest_state(run)
    del state["config"]
    state["logs"] = {name: copy[0] for name, copy in state["logs"].items()}
    checkpoint.save(run / "checkpoint", 2000, state, needs=[0, 1])
    before = csv_files(run)
    (run / "train.csv").write_bytes(before["train.csv"] + b"3000,1\n")
    (run / "eval.csv").unlink()
    code, out, _ = call("train", "--resume", run)
    assert code == 0 and "eval.csv is missing: the run goes on without" in out
    assert (run / "train.csv").read_bytes() == before["train.csv"]


# --- config.json ----------------------------------------------------------------------------


def test_an_edited_config_is_refused_with_both_values(run: Path, call: Call) -> None:
    config = json.loads((run / "config.json").read_text())
    was = config["sac"]["lr"]
    config["sac"]["lr"] = 10 * was
    (run / "config.json").write_text(json.dumps(config))
    before = csv_files(run)
    code, _, err = call("train", "--resume", run)
    assert (code, err.count("\n")) == (2, 1)
    assert f"sac.lr is {10 * was} and was {was}" in err and f"set it to {was} again" in err
    assert csv_files(run) == before and (run / NEWEST).exists()
    config["sac"]["lr"] = was
    (run / "config.json").write_text(json.dumps(config))
    assert call("train", "--resume", run)[0] == 0


def test_an_edited_config_is_named_by_those_who_only_read(run: Path, call: Call) -> None:
    path, text = run / "config.json", (run / "config.json").read_text()
    path.write_text(text.replace('"action_repeat": 8', '"action_repeat": 4'))
    code, out, err = call("eval", run, "--episodes", 1)
    assert code == 0, err
    assert out.startswith(f"note: {path} was changed: env.action_repeat is 4, was 8\n")
    path.write_text(text.replace('"seed": 1', '"seed": 3'))
    code, _, err = call("report", run, "--out", run.parent / "report")
    assert code == 2 and "config.json was changed after its last checkpoint" in err
    path.write_text(text.replace('"env_steps": 2000', '"env_steps": 5000'))  # it may be extended
    assert call("report", run, "--out", run.parent / "report")[0] == 0


def test_another_length_is_named(run: Path, call: Call) -> None:
    path, text = run / "config.json", (run / "config.json").read_text()
    path.write_text(text.replace('"env_steps": 2000', '"env_steps": 1000'))
    code, out, _ = call("train", "--resume", run)
    assert code == 0
    assert "asks for 1000 env steps, and for 2000 when the checkpoint was written" in out


# --- checkpoints with good checksums --------------------------------------------------------


@pytest.fixture(scope="module")
def trainer(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    path = tmp_path_factory.mktemp("trainer") / "run"
    shutil.copytree(whole, path)
    values = RunFiles(path).read_config()
    config = from_json(values)
    with RunDirectory.create_or_open(path, values, {}) as directory:
        recorder = Recorder(directory, config.schedule.env_steps)
        parts = build_parts(config, torch.device("cpu"))
        evaluator = make_evaluator(config, parts.agent)
        made = Trainer(config, *parts, recorder, evaluator, directory)
        yield made
        made.close()


@pytest.fixture(scope="module")
def good(whole: Path) -> dict[str, Any]:
    return newest_state(whole)


DELETE = object()
NAN = torch.tensor(float("nan"))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("agent",), DELETE),
        (("agent",), 7),
        (("counters",), DELETE),
        (("counters",), []),
        (("logs",), {"train.csv": "x"}),
        (("logs", "train.csv"), [1, "0", b"x"]),
        (("surprise",), 1),
        (("config",), "{"),
        (("config",), "[]"),
        (("elapsed",), "long"),
        (("elapsed",), float("nan")),
        (("sample_rng",), "{}"),
        (("sample_rng",), 3),
        (("act_generator",), torch.zeros(3)),
        (("evaluating",), {"frame": 1}),
        (("counters", "env_step"), "2000"),
        (("counters", "env_step"), 1999),
        (("counters", "episode"), -1),
        (("counters", "surprise"), 1),
        (("counters", "next_eval"), DELETE),
        (("agent", "actor"), DELETE),
        (("agent", "surprise"), 1),
        (("agent", "updates"), "many"),
        (("agent", "log_temperature"), 1.0),
        (("agent", "generator"), torch.zeros(8)),
        (("agent", "actor_metrics"), {"actor_loss": "x"}),
        (("agent", "critic"), {}),
        (("agent", "optimizer", "state", 0, "exp_avg"), torch.zeros(3)),
        (("agent", "optimizer", "state", 0, "exp_avg"), "x"),
        (("agent", "optimizer", "state", 0, "exp_avg_sq"), NAN),
        (("agent", "optimizer", "param_groups", 0, "lr"), "fast"),
        (("agent", "optimizer", "param_groups"), []),
        (("agent", "optimizer", "param_groups", 0, "eps"), -1),
        (("agent", "optimizer", "param_groups", 0, "betas"), (0.9, float("nan"))),
        (("agent", "optimizer", "param_groups", 0, "maximize"), True),
        (("agent", "optimizer", "param_groups", 0, "params", 0), "x"),
        (("agent", "optimizer", "param_groups", 0, "params", 0), 1),
        (("agent", "optimizer", "state", 0, "exp_avg"), DELETE),
        (("agent", "optimizer", "state", 0, "step"), 10**9),
        (("agent", "optimizer", "state", 10**6), {}),
        (("replay", "frames_written"), 10**12),
        (("replay", "frames_written"), -1),
        (("replay", "episodes"), {0: 5, 1: 2}),
        (("replay", "episodes"), {"0": 0}),
        (("replay", "episodes"), DELETE),
        (("replay", "layout"), None),
        (("replay", "running"), {"frames": 1}),
    ],
)
def test_an_odd_state_counts_as_damage(
    trainer: Trainer, good: dict[str, Any], where: tuple[Any, ...], value: object
) -> None:
    state = deepcopy(good)
    inner: Any = state
    for key in where[:-1]:
        inner = inner[key]
    if value is DELETE:
        del inner[where[-1]]
    else:
        inner[where[-1]] = value
    with pytest.raises(checkpoint.Damaged) as caught:
        trainer._use(2000, state)
    assert str(caught.value) and "\n" not in str(caught.value)
    trainer._use(2000, deepcopy(good))


def test_weights_that_are_not_numbers_fall_back_to_the_checkpoint_before(
    whole: Path, run: Path, call: Call
) -> None:
    state = newest_state(run)
    next(iter(state["agent"]["actor"].values())).fill_(float("nan"))
    checkpoint.save(run / "checkpoint", 2000, state, needs=[0, 1])
    assert sibe.load_policy(run).env_step == 1000
    code, out, err = call("train", "--resume", run)
    assert code == 0, err
    assert "checkpoint_000002000.pt is damaged (" in out and "actor are not finite" in out
    assert "continuing at env_step 1000" in out
    for name in CSV_FILES:
        assert without_wall_clock(run / name) == without_wall_clock(whole / name)
    assert (run / f"{NEWEST}.damaged").exists()
    assert newest_state(run)["counters"]["env_step"] == 2000


def test_a_checkpoint_that_is_a_folder_is_named_and_does_not_stop_the_last_one(
    run: Path, call: Call
) -> None:
    (run / NEWEST).unlink()
    (run / NEWEST / "full").mkdir(parents=True)
    code, out, err = call("train", "--resume", run)
    assert code == 0, err
    assert "checkpoint_000002000.pt is not a file and is passed over" in out
    assert newest_state(run)["counters"]["env_step"] == 2000
    assert (run / f"{NEWEST}.damaged" / "full").is_dir()


# --- episode files --------------------------------------------------------------------------


def test_a_newer_episode_is_made_again(whole: Path, run: Path, call: Call) -> None:
    flip(run / "replay" / "episode_000001.npz", 5000)  # the checkpoint at 1000 does without it
    code, out, err = call("train", "--resume", run)
    assert code == 0, err
    assert "episode_000001.npz is damaged" in out and "continuing at env_step 1000" in out
    assert "note: the replay" not in out
    assert without_wall_clock(run / "train.csv") == without_wall_clock(whole / "train.csv")


def test_an_episode_that_all_need_is_left_out_and_named(run: Path, call: Call) -> None:
    (run / "replay" / "episode_000000.npz").unlink()
    code, out, err = call("train", "--resume", run)
    assert code == 0, err
    note = next(line for line in out.splitlines() if line.startswith("note: the replay"))
    assert "(0)" in note and "not end with the same numbers" in note
    assert "continuing at env_step 2000" in out


def test_without_any_episode_the_run_is_refused_and_kept(run: Path, call: Call) -> None:
    shutil.rmtree(run / "replay")
    before = {path: path.read_bytes() for path in (run / "checkpoint").iterdir()}
    code, _, err = call("train", "--resume", run)
    assert (code, err.count("\n")) == (2, 1) and "no episode is left to learn from" in err
    assert {path: path.read_bytes() for path in (run / "checkpoint").iterdir()} == before


def test_a_lost_episode_is_never_sampled(trainer: Trainer, good: dict[str, Any]) -> None:
    number = 0
    path = trainer.directory.replay / "episode_000000.npz"
    data = path.read_bytes()
    path.write_bytes(b"")
    trainer._use(2000, deepcopy(good), lossy=True)
    path.write_bytes(data)
    replay = trainer.replay
    assert replay.lost_episodes() == [number] and replay.needed_episodes() == {1}
    assert replay.state()["lost"] == [number]
    first, _, _, count = replay._ring._intervals(2, None)
    assert count[0] == 0 and count[1] > 0
    rng = np.random.default_rng(0)
    starts = replay._ring.draw(500, 2, rng).start
    assert starts.min() >= first[1]
    trainer._use(2000, deepcopy(good))
    assert replay.lost_episodes() == []
