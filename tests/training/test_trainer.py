"""The training loop on dummies: what happens in which order, what is counted, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from training_dummies import (
    COPY,
    EARLIER,
    DummyAgent,
    DummyEnv,
    DummyEvaluator,
    DummyRecorder,
    DummyReplay,
)

from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import sampling, updates_per_run
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.storage import checkpoint
from sibe.storage.run_directory import RunDirectory
from sibe.training.trainer import Trainer

Make = Callable[..., Any]


def config(**schedule: Any) -> RunConfig:
    """Episodes take 6 env steps, 2 per agent step."""
    debug = preset_config("debug", method="none")
    given = {"env_steps": 12, "initial_steps": 2, "eval_every": 8, "checkpoint_every": 6}
    wanted = replace(debug.schedule, video=False, eval_episodes=2, **{**given, **schedule})
    return replace(debug, schedule=wanted)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Returns trainers of one run directory; all parts of one share its events."""
    with RunDirectory.create_or_open(tmp_path / "run", {}, {}) as directory:

        def build(patience: int = 0, **schedule: Any) -> Any:
            events: list[Any] = []
            env, evaluator = DummyEnv(events), cast(Any, DummyEvaluator(events, patience))
            kinds = (DummyAgent, DummyReplay, DummyRecorder)
            agent, replay, recorder = (cast(Any, kind(events)) for kind in kinds)
            return Trainer(config(**schedule), env, agent, replay, recorder, evaluator, directory)

        yield build


def happened(trainer: Any, *names: str) -> list[str]:
    return [event[0] for event in trainer.env.events if event[0] in names]


def test_collect_update_evaluate_checkpoint_in_this_order(make: Make, tmp_path: Path) -> None:
    trainer = make()
    trainer.run()
    wanted = ("reset", "step", "update", "evaluate", "evaluation", "row", "checkpoint")
    assert happened(trainer, *wanted) == [
        *("reset", "step"),
        *("step", "update"),  # two agent steps of random actions are enough to begin
        *("step", "update", "row", "checkpoint"),  # 6 env steps
        *("reset", "step", "update", "evaluate", "evaluation"),  # 8, in the middle of an episode
        *("step", "update"),
        *("step", "update", "row", "evaluate", "evaluation", "checkpoint"),  # 12: the end
    ]
    assert trainer.env.events[:2] == [("rewind", {}), ("open", ("loss", "spread"), 0)]
    assert checkpoint.list_steps(tmp_path / "run" / "checkpoint") == [6, 12]


def test_the_replay_ratio_is_the_number_of_updates_after_each_agent_step(make: Make) -> None:
    trainer = make()
    wanted = trainer.config
    wanted = replace(wanted, sac=replace(wanted.sac, replay_ratio=3))
    trainer.sampling = sampling(wanted)
    trainer.run()
    learning = ["step", "update", "update", "update"]
    assert happened(trainer, "step", "update") == ["step", *5 * learning]
    length = replace(wanted.env, action_repeat=2)  # that of the stand-in
    assert updates_per_run(replace(wanted, env=length)) == 15


def test_an_evaluation_at_the_end_of_an_episode_comes_after_its_row(make: Make) -> None:
    trainer = make(eval_every=6)
    trainer.run()
    wanted = ("row", "evaluate", "checkpoint")
    assert happened(trainer, *wanted) == ["row", "evaluate", "checkpoint"] * 2


def test_rows_hold_the_counters_and_the_means_of_an_episode(make: Make) -> None:
    trainer = make()
    trainer.run()
    first, second = trainer.recorder.rows
    assert {name: first[name] for name in first if name not in ("total_time", "fps")} == {
        "frame": 6,
        "step": 3,
        "episode": 1,
        "episode_length": 6,
        "episode_reward": 3.0,
        "buffer_size": 3,
        "updates": 2,
        "loss": 1.5,  # 1 and 2
        "spread": 3.0,
    }
    assert [second[name] for name in ("frame", "step", "episode", "updates")] == [12, 6, 2, 5]
    assert second["loss"] == 4.0  # 3, 4 and 5
    assert trainer.recorder.ticks == [
        *((2, 1, 0), (4, 2, 1), (6, 3, 2)),
        *((8, 4, 3), (10, 5, 4), (12, 6, 5)),
    ]


def test_without_an_update_a_row_has_no_metrics(make: Make) -> None:
    trainer = make(initial_steps=100)
    trainer.run()
    assert not trainer.agent.drawn and "loss" not in trainer.recorder.rows[0]


def test_evaluations_that_take_long_are_written_when_they_end(make: Make) -> None:
    trainer = make(patience=3, eval_every=2, checkpoint_every=100)
    trainer.run()
    evaluations = [event for event in trainer.env.events if event[0] == "evaluation"]
    assert [frame for _, frame, _ in evaluations] == [2, 4, 6, 8, 10, 12]
    assert all(count == 2 for _, _, count in evaluations)
    # One is still being played when the next begins, which ends it.
    assert happened(trainer, "evaluate", "evaluation") == ["evaluate", "evaluation"] * 6


def test_a_resumed_trainer_goes_on_as_one_that_never_stopped(make: Make) -> None:
    whole = make(env_steps=18, checkpoint_every=100)
    whole.checkpoints.save = lambda *_, **__: None  # the next one begins anew
    whole.run()

    begun = make(env_steps=6)
    begun.run()
    again = make(env_steps=18)
    again.run()
    assert ("say", "continuing at env_step 6") in again.env.events
    rewinds = [event[1] for event in again.env.events if event[0] == "rewind"]
    # No evaluation was due at 6: the one at the end of the shorter run is taken back.
    assert rewinds == [{"train.csv": COPY}, {"train.csv": COPY, "eval.csv": EARLIER}]
    state, episode = again.replay.restored
    assert state == {"kept": 7} and episode.action[:, 0].tolist() == pytest.approx(
        whole.env.actions[:3]
    )
    assert begun.env.actions + again.env.actions == whole.env.actions
    assert begun.agent.drawn + again.agent.drawn == whole.agent.drawn
    timed = ("total_time", "fps")
    rows = [
        [{name: row[name] for name in row if name not in timed} for row in one.recorder.rows]
        for one in (begun, again, whole)
    ]
    assert rows[0] + rows[1] == rows[2]


def test_an_evaluation_that_was_due_at_the_end_is_kept_when_a_run_is_extended(make: Make) -> None:
    make(env_steps=6, eval_every=6).run()
    again = make(env_steps=12, eval_every=6)
    again.run()
    assert [event[1] for event in again.env.events if event[0] == "rewind"] == [{"train.csv": COPY}]
    assert [event[1] for event in again.env.events if event[0] == "evaluation"] == [12]


def test_a_finished_run_is_left_alone(make: Make) -> None:
    make().run()
    again = make()
    again.run()
    assert ("say", "already finished at env_step 12") in again.env.events
    assert not happened(again, "reset", "step", "open", "checkpoint")


def test_a_loss_that_is_not_finite_stops_the_run_before_the_next_checkpoint(
    make: Make, tmp_path: Path
) -> None:
    trainer = make(initial_steps=4)
    trainer.agent.metrics["loss"] = float("nan")
    with pytest.raises(UserError, match=r"^loss became non-finite at env_step 8; the last chec"):
        trainer.run()
    assert checkpoint.list_steps(tmp_path / "run" / "checkpoint") == [6]


def test_other_metrics_may_be_infinite(make: Make) -> None:
    trainer = make()
    trainer.agent.metrics["spread"] = float("inf")
    trainer.run()
    assert trainer.recorder.rows[-1]["spread"] == float("inf")


@pytest.mark.parametrize("doing", ["evaluate", "save"])
def test_broken_weights_are_neither_evaluated_nor_saved(make: Make, doing: str) -> None:
    trainer = make()
    torch.nn.init.constant_(trainer.agent.actor.weight, float("nan"))
    with pytest.raises(UserError, match="the weights of the actor became non-finite"):
        getattr(trainer, doing)()
    assert not happened(trainer, "evaluate", "checkpoint")


def test_a_broken_action_names_the_broken_network_if_there_is_one(make: Make) -> None:
    trainer = make(initial_steps=1)
    trainer.agent.own_policy.broken = True
    with pytest.raises(UserError, match="the action became non-finite at env_step 2; the last"):
        trainer.run()
    trainer = make(initial_steps=1)
    trainer.agent.own_policy.broken = True
    torch.nn.init.constant_(trainer.agent.actor.weight, float("inf"))
    with pytest.raises(UserError, match="the weights of the actor became non-finite"):
        trainer.run()


def test_closing_closes_both_kinds_of_environments(make: Make) -> None:
    trainer = make()
    trainer.close()
    assert trainer.env.events == [("close",), ("close",)]
