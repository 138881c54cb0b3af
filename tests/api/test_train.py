"""`sibe.train`: what it returns, environments of one's own, callbacks, and what it refuses."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from own_envs import LENGTH, Dot

import sibe
from sibe.api.train import _for_own
from sibe.cli import main as cli
from sibe.logs.csv_log import WALL_CLOCK_COLUMNS, read_csv
from sibe.training.callbacks import Evaluation
from sibe.training.trainer import Trainer

EPISODE = LENGTH  # env steps
SMALL: dict[str, Any] = {
    "preset": "debug",
    "method": "none",
    "threads": 1,
    "env_steps": 5 * EPISODE,
    "initial_steps": 30,
    "eval_every": EPISODE,
    "eval_episodes": 2,
    "checkpoint_every": 2 * EPISODE,
    "video": False,
    "action_repeat": 1,
    "sac": {"batch": 4},
}
RUN = {name: value for name, value in SMALL.items() if name not in ("preset", "method")}


class Diary(sibe.Callback):
    """Writes down what it is told; stops the run after the ``stop``-th line that starts so."""

    def __init__(self, stop: str = "never", count: int = 1) -> None:
        self.lines: list[str] = []
        self._stop, self._left = stop, count

    def _note(self, line: str) -> bool | None:
        self.lines.append(line)
        self._left -= line.startswith(self._stop)
        return cast(bool, np.bool_(False)) if self._left == 0 else None  # of a comparison

    def after_step(self, training: Trainer) -> bool | None:
        return self._note(f"step {training.agent_step}")

    def after_episode(self, training: Trainer, row: Mapping[str, Any]) -> bool | None:
        return self._note(f"episode {training.episode} of {row['episode_length']}")

    def after_evaluation(self, training: Trainer, evaluation: Evaluation) -> bool | None:
        assert evaluation.mean == np.mean([each.episode_return for each in evaluation.episodes])
        return self._note(f"evaluation {evaluation.env_step}")

    def after_checkpoint(self, training: Trainer) -> bool | None:
        return self._note(f"checkpoint {training.env_step}")


class Whole:
    """A run that was not stopped."""

    def __init__(self, out: Path) -> None:
        self.diary, self.others = Diary(), Diary()
        self.result = sibe.train(Dot, out=out, callback=[self.diary, self.others], **SMALL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("api") / "whole")


def numbers(run: Path, *names: str) -> list[dict[str, str]]:
    """Return the rows of the run's tables without the columns of the clock."""
    rows: list[dict[str, str]] = []
    for name in names or ("train.csv", "eval.csv", "eval_episodes.csv"):
        with (run / name).open() as file:
            rows += csv.DictReader(file)
    return [{n: v for n, v in row.items() if n not in WALL_CLOCK_COLUMNS} for row in rows]


def test_the_result_has_directory_scores_and_policy(whole: Whole) -> None:
    result = whole.result
    assert (result.env_step, result.finished) == (5 * EPISODE, True)
    rows = read_csv(result.directory / "eval.csv")
    assert result.evaluations.env_steps.tolist() == rows["frame"].tolist()
    assert result.score == rows["episode_reward"][-5:].mean()
    assert len(rows["frame"]) == 5
    env = result.policy.make_env(Dot())
    obs, _ = env.reset(seed=1)
    assert env.action_space.contains(result.policy.act(obs))
    assert result.policy is result.policy
    assert repr(result) == (
        f"TrainingResult({str(result.directory)!r}: none on own/Dot (clean), seed 1, "
        f"env_step 100 of 100, score {result.score:.1f} of the last 5 evaluations)"
    )
    assert repr(result.policy) == (
        "TrainedPolicy(none on own/Dot (clean), env_step 100, "
        "uint8 [32, 32, 9] -> float32 [2], cpu)"
    )


def test_one_evaluation_is_one(whole: Whole, tmp_path: Path) -> None:
    run = shutil.copytree(whole.result.directory, tmp_path / "run")
    rows = (run / "eval.csv").read_text().splitlines(keepends=True)
    (run / "eval.csv").write_text("".join(rows[:2]))
    assert repr(sibe.TrainingResult(run)).endswith(" of the last 1 evaluation)")


def test_only_the_last_video_is_that_of_the_last_evaluation(
    whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(whole.result.directory, tmp_path / "run")
    for step in (98, 100):  # one was due while the last episode was played out
        (run / "video" / f"eval_{step:09d}.mp4").write_bytes(b"")
    sibe.train(Dot, out=run, **SMALL)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("video")]
    assert said == [f"video of the last evaluation: {run / 'video' / 'eval_000000100.mp4'}"]


def test_callbacks_are_told_of_everything_in_order(whole: Whole) -> None:
    lines = whole.diary.lines
    assert lines == whole.others.lines
    assert [line for line in lines if line.startswith("step")] == [
        f"step {number}" for number in range(1, 101)
    ]
    assert [line for line in lines if not line.startswith("step")] == [
        *("episode 1 of 20", "evaluation 20"),
        *("episode 2 of 20", "evaluation 40", "checkpoint 40"),
        *("episode 3 of 20", "evaluation 60"),
        *("episode 4 of 20", "evaluation 80", "checkpoint 80"),
        *("episode 5 of 20", "evaluation 100", "checkpoint 100"),
    ]


@pytest.mark.parametrize(("stop", "count", "at"), [("step", 50, 60), ("checkpoint", 1, 40)])
def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(
    whole: Whole, tmp_path: Path, stop: str, count: int, at: int
) -> None:
    stopped = sibe.train(Dot, out=tmp_path / "run", callback=Diary(stop, count), **SMALL)
    assert (stopped.env_step, stopped.finished) == (at, False)
    assert stopped.policy.env_step == at
    again = sibe.train(Dot, resume=stopped.directory)
    assert again.finished
    assert numbers(again.directory) == numbers(whole.result.directory)


def test_a_finished_run_is_extended(whole: Whole, tmp_path: Path) -> None:
    short = sibe.train(Dot, out=tmp_path / "run", **{**SMALL, "env_steps": 60})
    assert short.finished and short.env_step == 60
    longer = sibe.train(Dot, resume=short.directory, env_steps=100)
    assert numbers(longer.directory) == numbers(whole.result.directory)


def test_objects_are_used_and_left_open_and_no_callback_changes_a_number(
    whole: Whole, tmp_path: Path
) -> None:
    training, evaluation = Dot(), Dot()
    result = sibe.train(training, eval_env=evaluation, out=tmp_path / "run", **SMALL)
    assert numbers(result.directory, "train.csv") == numbers(whole.result.directory, "train.csv")
    assert not training.closed and not evaluation.closed


def test_the_same_call_again_returns_at_once(whole: Whole) -> None:
    before, diary = numbers(whole.result.directory), Diary()
    again = sibe.train(Dot, out=whole.result.directory, callback=diary, **SMALL)
    assert numbers(again.directory) == before
    assert diary.lines == []


def test_factories_get_seeds_of_their_own_and_are_closed(tmp_path: Path) -> None:
    made: list[Dot] = []

    def make(seed: int) -> Dot:
        made.append(Dot(seed))
        return made[-1]

    sibe.train(make, out=tmp_path / "run", **{**SMALL, "env_steps": EPISODE})
    assert len({env.given_seed for env in made}) == 3  # training, and two to evaluate in
    assert all(env.closed for env in made)


def test_what_gym_makes_can_be_made_again(tmp_path: Path) -> None:
    gym.register("Dot-v0", "own_envs:Dot", max_episode_steps=10)
    try:
        result = sibe.train(gym.make("Dot-v0"), out=tmp_path, **{**SMALL, "env_steps": 10})
    finally:
        del gym.registry["Dot-v0"]
    assert result.config.env.task == "own/Dot-v0"
    assert result.env_step == 10


def test_a_config_may_be_given_whole(tmp_path: Path) -> None:
    config = sibe.preset_config("debug", task="own/Dot", method="none")
    given = {**RUN, "env_steps": EPISODE}
    result = sibe.train(Dot, config=config, seed=5, out=tmp_path, **given)
    assert (result.config.seed, result.config.method) == (5, "none")


def test_an_own_environment_is_not_given_the_action_repeat_of_a_presets_task() -> None:
    env = sibe.preset_config("cpu").env
    assert env.action_repeat == 8  # cartpole's
    assert _for_own(env, "own/Dot", {}).action_repeat == 1
    assert _for_own(env, "own/Dot", {"action_repeat": 8}).action_repeat == 8
    assert _for_own(replace(env, action_repeat=3), "own/Dot", {}).action_repeat == 3
    config = sibe.preset_config("cpu", task="walker_walk").env
    assert _for_own(config, "own/Dot", {}).action_repeat == 1


def test_a_callback_that_is_empty_or_a_list_is_told_all_the_same(tmp_path: Path) -> None:
    class Rows(sibe.Callback, list[int]):
        def after_episode(self, training: Trainer, row: Mapping[str, Any]) -> None:
            self.append(training.episode)

    rows = Rows()
    sibe.train(Dot, callback=rows, out=tmp_path, **{**SMALL, "env_steps": 2 * EPISODE})
    assert len(rows) == 2


def test_a_run_that_ended_before_its_last_evaluation_is_not_finished(tmp_path: Path) -> None:
    class Broken(sibe.Callback):
        def after_episode(self, training: Trainer, row: Mapping[str, Any]) -> None:
            if training.env_step == 2 * EPISODE:
                raise RuntimeError

    given: dict[str, Any] = {**SMALL, "env_steps": 2 * EPISODE, "out": tmp_path}
    with pytest.raises(RuntimeError):
        sibe.train(Dot, callback=Broken(), **given)
    assert sibe.TrainingResult(tmp_path).env_step == 2 * EPISODE
    assert not sibe.TrainingResult(tmp_path).finished
    assert sibe.train(Dot, **given).finished
    shutil.rmtree(tmp_path / "checkpoint")  # as published
    assert sibe.TrainingResult(tmp_path).finished


def test_python_and_the_command_line_ask_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def stand_in(config: sibe.RunConfig, out: Path | None, **_: Any) -> Path:
        asked.append((config, out))
        raise sibe.UserError("far enough")

    monkeypatch.setattr("sibe.training.run.train", stand_in)
    line = "train --preset debug --task walker_walk --background noise --env-steps 900 --seed 3"
    with pytest.raises(SystemExit):
        cli.main([*line.split(), "--sac.batch", "4", "--sibe.alpha", "0.5", "--out", "here"])
    with pytest.raises(sibe.UserError, match="far enough"):
        sibe.train(
            task="walker_walk",
            background="noise",
            preset="debug",
            seed=3,
            out="here",
            env_steps=900,
            sac={"batch": 4},
            sibe={"alpha": 0.5},
        )
    assert asked[0] == asked[1]


def test_a_run_in_ones_own_environment_needs_it_again(
    whole: Whole, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = whole.result.directory
    with pytest.raises(sibe.UserError, match=r"own/Dot was made in Python .* resume=RUN"):
        sibe.train(resume=directory)
    for verb in (["train", "--resume", str(directory)], ["eval", str(directory)]):
        with pytest.raises(SystemExit) as stop:
            cli.main(verb)
        assert stop.value.code == 2
        assert "own/Dot was made in Python" in capsys.readouterr().err
    pendulum = gym.make("Pendulum-v1", render_mode="rgb_array")
    with pytest.raises(sibe.UserError, match="trained in own/Dot, not in own/Pendulum-v1"):
        sibe.train(pendulum, resume=directory)


class Unseen(Dot):
    """Observes no image and cannot be drawn."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)  # type: ignore[assignment]


class Stacked(Dot):
    """Observes stacked frames."""

    observation_space = gym.spaces.Box(0, 255, (20, 24, 9), np.uint8)


ONE = Dot()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"task": "walker_wlak"}, "did you mean walker_walk"),
        ({"task": 3}, "an environment is a gymnasium.Env or a factory, not 3"),
        ({"task": Dot()}, "evaluation needs another one like it"),
        ({"task": Unseen}, "make it with render_mode='rgb_array'"),
        ({"task": Stacked}, "make it with stack=1"),
        ({"task": lambda: 3}, "the factory returned 3"),
        ({"task": lambda: ONE}, "it must make new ones"),
        ({"task": Dot, "eval_env": lambda: ONE}, "it must make new ones"),
        ({"task": Dot, "background": "noise"}, "can only be seen clean"),
        ({"task": Dot, "eval_process": True}, "eval_process needs an environment by name"),
        ({"eval_env": Dot}, "eval_env goes with an environment of your own"),
        ({"task": sibe.RunConfig()}, "sibe.train(config=…)"),
        ({"config": sibe.RunConfig(), "method": "none"}, "leave out preset, method"),
        ({"resume": "there", "eval_every": 5}, "leave out preset, eval_every"),
        ({"callback": Diary}, "a subclass of sibe.Callback"),
        ({"callback": [print]}, "a subclass of sibe.Callback"),
        ({"alhpa": 3}, "unknown option 'alhpa'"),
        ({"preset": "tiny"}, "unknown preset 'tiny'"),
    ],
)
def test_a_mistake_is_one_line(arguments: dict[str, Any], words: str, tmp_path: Path) -> None:
    given = {"preset": "debug", **arguments}
    if "resume" not in given:
        given["out"] = tmp_path / "run"
    with pytest.raises(sibe.UserError) as caught:
        sibe.train(**given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_callback_raises_ends_the_run_at_once(tmp_path: Path) -> None:
    class Broken(sibe.Callback):
        def after_step(self, training: Trainer) -> bool | None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sibe.train(Dot, out=tmp_path / "run", callback=Broken(), **SMALL)
    assert sibe.TrainingResult(tmp_path / "run").env_step == 0
    assert "no score" in repr(sibe.TrainingResult(tmp_path / "run"))


def test_importing_sibe_is_quick_and_every_name_is_there() -> None:
    heavy = "{'torch', 'mujoco', 'tyro', 'matplotlib'} & set(sys.modules)"
    code = f"import sys, sibe; found = {heavy}; assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert all(hasattr(sibe, name) for name in sibe.__all__)
    assert set(sibe.__all__) <= set(dir(sibe))
