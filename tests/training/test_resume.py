"""The promise of a run: one seed, one result; killed at any instant, it ends the same."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from run_records import flat, without_wall_clock

from sibe.envs.backgrounds.clips import ClipBank
from sibe.replay.episodes import read_episode
from sibe.storage import checkpoint

STEPS = 12000
FLAGS = [
    *("--preset", "debug", "--task", "cartpole_swingup", "--background", "noise"),
    *("--env-steps", str(STEPS), "--checkpoint-every", "1000", "--threads", "1"),
    # a ring smaller than the run, so that it wraps and episode files are deleted
    *("--replay-capacity", "300", "--seed", "3"),
]
CSV_FILES = ("train.csv", "eval.csv", "eval_episodes.csv")


def command(out: Path, *extra: str) -> list[str]:
    return [sys.executable, "-m", "sibe", "train", *FLAGS, "--out", str(out), *extra]


def start(out: Path, *extra: str) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command(out, *extra), env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(out: Path, *extra: str) -> str:
    process = start(out, *extra)
    text, _ = process.communicate(timeout=300)
    assert process.returncode == 0, text
    return text


def final_state(run: Path) -> dict[str, Any]:
    found = checkpoint.load_newest(run / "checkpoint", map_location="cpu", report=print)
    assert found is not None and found[0] == STEPS
    return flat({"agent": found[1]["agent"], "replay": found[1]["replay"]})


def assert_same_result(a: Path, b: Path) -> None:
    for name in CSV_FILES:
        assert without_wall_clock(a / name) == without_wall_clock(b / name), name
    first, second = final_state(a), final_state(b)
    assert first.keys() == second.keys()
    for name, value in first.items():
        other = second[name]
        same = torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other
        assert same, name
    kept = [sorted(p.name for p in (run / "replay").iterdir()) for run in (a, b)]
    assert kept[0] == kept[1]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    finish(out)
    return out


def test_same_seed_twice_is_identical(uninterrupted: Path, tmp_path: Path) -> None:
    finish(tmp_path / "again")
    assert_same_result(uninterrupted, tmp_path / "again")


def test_killed_ten_times_ends_the_same(uninterrupted: Path, tmp_path: Path) -> None:
    """SIGKILL at random instants: start-up, collecting, evaluating, writing."""
    out, chance = tmp_path / "killed", random.Random(5)
    survived = [0]
    for kill in range(10):
        process, began = start(out), time.time()
        if kill % 3 == 0:  # during start-up, wherever that is by then
            time.sleep(chance.uniform(0.5, 6.0))
        else:  # once this process has played an episode of its own, or has saved it
            saved = kill % 3 == 2
            while (
                max(checkpoint.list_steps(out / "checkpoint"), default=0) <= survived[-1]
                if saved
                else rows_since(out / "train.csv", began) <= survived[-1] // 1000
            ):
                assert process.poll() is None, f"it ended before the kill: {survived}"
                time.sleep(0.02)
            time.sleep(chance.uniform(0.0, 1.0))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        survived.append(max(checkpoint.list_steps(out / "checkpoint"), default=0))
    assert 0 < survived[-1] < STEPS, f"the kills were not spread over the run: {survived}"
    finish(out)
    assert_same_result(uninterrupted, out)


def test_a_video_loop_goes_on_where_it_was(bank: Path, tmp_path: Path) -> None:
    flags = ("--background", "video", "--clips", str(bank), "--loop-frames", "37")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(whole, *flags)
    process = start(killed, *flags)
    while max(checkpoint.list_steps(killed / "checkpoint"), default=0) < STEPS // 3:
        assert process.poll() is None, "it ended before the kill"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finish(killed, *flags)
    assert_same_result(whole, killed)
    # Every frame of the run lies over the next frame of the loop, across its episodes.
    loop = ClipBank.open(bank)
    playlist = [i for c in loop.clips("train") for i in range(c.start, c.start + c.frames)][:37]
    episodes = [read_episode(path) for path in sorted((killed / "replay").iterdir())]
    shown = [frame for episode in episodes for frame in episode.frames]
    agent_steps = STEPS // 8
    first = agent_steps + agent_steps // 125 - len(shown)
    for number, frame in enumerate(shown, first):
        picture = loop.frame(playlist[number % len(playlist)], *frame.shape[:2])
        assert (frame == picture).all(axis=-1).mean() > 0.8


def test_evaluating_in_a_process_of_its_own_changes_nothing(
    uninterrupted: Path, tmp_path: Path
) -> None:
    """Nor do kills: right after checkpoints, when evaluations have been begun and not written."""
    out = tmp_path / "beside"
    for after in (1000, 4000, 8000):
        process = start(out, "--eval-process")
        while max(checkpoint.list_steps(out / "checkpoint"), default=0) < after:
            assert process.poll() is None, "it ended before the kill"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    found = checkpoint.load_newest(out / "checkpoint", map_location="cpu", report=print)
    assert found is not None and found[1]["evaluating"]["frame"] == found[0]
    finish(out, "--eval-process")
    assert_same_result(uninterrupted, out)
    assert list((out / "video").glob("*.mp4"))


def rows_since(path: Path, began: float) -> int:
    """Rows of a csv that was written after ``began``: resuming cuts it to the checkpoint first."""
    if not path.exists() or path.stat().st_mtime < began:
        return 0
    return path.read_text().count("\n") - 1


def test_killed_right_at_each_kind_of_write(uninterrupted: Path, tmp_path: Path) -> None:
    """SIGKILL inside the write: before the rename, so that temporary files are left behind."""
    out = tmp_path / "torn"
    for nth, name in ((2, "episode_"), (1, "checkpoint_"), (2, "checkpoint_"), (6, "episode_")):
        code = (
            "import os, signal, sys\n"
            "real, seen = os.replace, [0]\n"
            "def replace(a, b, **k):\n"
            f"    if os.path.basename(str(b)).startswith({name!r}):\n"
            "        seen[0] += 1\n"
            f"        if seen[0] == {nth}: os.kill(os.getpid(), signal.SIGKILL)\n"
            "    return real(a, b, **k)\n"
            "os.replace = replace\n"
            "from sibe.cli.main import main\n"
            f"main({['train', *FLAGS, '--out', str(out)]!r})\n"
        )
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    finish(out)
    assert_same_result(uninterrupted, out)


def test_damaged_newest_checkpoint_falls_back_and_says_so(
    uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "damaged"
    process = start(out)
    while max(checkpoint.list_steps(out / "checkpoint"), default=0) < 2000:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    newest = max(checkpoint.list_steps(out / "checkpoint"))
    path = out / "checkpoint" / f"checkpoint_{newest:09d}.pt"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    text = finish(out)
    assert path.name in text and "continuing at env_step" in text
    assert_same_result(uninterrupted, out)


def test_resume_by_directory_and_finished_run(uninterrupted: Path) -> None:
    before = (uninterrupted / "train.csv").read_bytes()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "sibe", "train", "--resume", str(uninterrupted)],
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout
    assert (uninterrupted / "train.csv").read_bytes() == before


def test_results_without_checkpoints_are_not_begun_anew(
    uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results"
    shutil.copytree(uninterrupted, out)
    shutil.rmtree(out / "checkpoint")
    before = {name: (out / name).read_bytes() for name in ("train.csv", "eval.csv")}
    done = subprocess.run(
        command(out), env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 2 and "no checkpoint to go on from" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert before == {name: (out / name).read_bytes() for name in before}


def test_another_config_and_a_second_process_are_refused(
    uninterrupted: Path, tmp_path: Path
) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command(uninterrupted, "--sac.lr", "0.5"), env=env, capture_output=True, text=True
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "lr" in done.stderr

    out = tmp_path / "busy"
    process = start(out)
    while not (out / "train.csv").exists():
        time.sleep(0.05)
    done = subprocess.run(command(out), env=env, capture_output=True, text=True)
    process.kill()
    process.communicate()
    assert done.returncode == 2 and "in use" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
