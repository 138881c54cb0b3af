"""Plan2Explore from the outside: its memory, an exact resume, its flags, its documentation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from method_inputs import build_method

import sibe
from sibe.agents.plan2explore.agent import Plan2Explore
from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.agents.plan2explore.images import to_float
from sibe.catalogue.presets import PRESETS, preset_config
from sibe.catalogue.run_config import check, from_json, to_json, updates_per_run
from sibe.cli import main as cli
from sibe.config.schema import RunConfig, SACConfig
from sibe.errors import UserError
from sibe.logs.csv_log import WALL_CLOCK_COLUMNS, read_csv
from sibe.storage import checkpoint

PAGE = Path(__file__).parents[2] / "docs" / "methods" / "plan2explore.md"
CSV_FILES = ("train.csv", "eval.csv", "eval_episodes.csv")


def make_agent(**changes: Any) -> Plan2Explore:
    config = preset_config("debug", method="plan2explore")
    config = replace(config, method_config=replace(config.method_config, **changes))
    return Plan2Explore(config, 2, torch.Generator().manual_seed(0), torch.device("cpu"))


def frames(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


# --- the policy and its memory --------------------------------------------------------------


def test_the_policy_is_the_filter_of_the_rssm_and_the_mean_of_the_actor() -> None:
    agent, seen = make_agent(), frames(4)
    policy = agent.policy()
    policy.reset()
    taken = torch.from_numpy(np.stack([policy.act(frame[None], None) for frame in seen]))
    before = torch.cat((torch.zeros(1, 1, 2), taken[:-1]))
    with torch.no_grad():
        embedding = agent.model.encoder(to_float(torch.from_numpy(seen)))[:, None]
        rssm = agent.model.rssm
        features = rssm.observe(embedding, before, torch.zeros(4, 1, rssm.sizes[1])).state.features
        expected = agent.behaviors["task"].actor(features)[0].tanh()
    torch.testing.assert_close(taken, expected)


def test_memory_matters_and_reset_forgets_it() -> None:
    agent = make_agent()
    policy, (first, second) = agent.policy(), frames(2)[:, None]
    policy.reset()
    fresh = policy.act(first, None)
    policy.act(second, None)
    assert not np.array_equal(policy.act(first, None), fresh)
    policy.reset()
    np.testing.assert_array_equal(policy.act(first, None), fresh)


def test_episodes_that_end_leave_the_others_undisturbed() -> None:
    """Three episodes in lock step, the middle one ends: the others act as if alone."""
    agent = make_agent()
    together, seen = agent.policy(), np.stack([frames(4, seed) for seed in range(3)])
    together.reset()
    played = [
        together.act(seen[:, 0], None, (0, 1, 2)),
        together.act(seen[:, 1], None, (0, 1, 2)),
        together.act(seen[[0, 2], 2], None, (0, 2)),
        together.act(seen[[2], 3], None, (2,)),
    ]
    alone = agent.policy()
    alone.reset()
    for t, row in enumerate((2, 2, 1, 0)):
        np.testing.assert_allclose(
            played[t][row], alone.act(seen[2, t][None], None)[0], rtol=1e-4, atol=1e-5
        )
    with pytest.raises(UserError, match="reset"):
        together.act(seen[:2, 3], None, (0, 2))


def test_collecting_draws_from_its_generator_alone() -> None:
    agent, seen = make_agent(), frames(1)

    def collect(seed: int) -> np.ndarray:
        policy, generator = agent.policy(), torch.Generator().manual_seed(seed)
        return np.stack([policy.act(seen, generator) for _ in range(3)])

    np.testing.assert_array_equal(collect(1), collect(1))
    assert not np.array_equal(collect(1), collect(2)) and np.abs(collect(1)).max() <= 1


def test_zero_shot_collects_with_one_policy_and_is_judged_by_another() -> None:
    agent = make_agent(mode="zero_shot", action_noise=0.0)
    with torch.no_grad():
        for name, mean in (("curious", 50.0), ("task", -50.0)):
            bias = agent.behaviors[name].actor.trunk[-1].get_parameter("bias")
            bias.copy_(torch.tensor([mean, mean, -50.0, -50.0]))
    policy = agent.policy()
    policy.reset()
    assert (policy.act(frames(1), torch.Generator()) > 0.9).all()
    assert (policy.act(frames(1), None) < -0.9).all()


def test_embedding_of_single_states() -> None:
    agent = make_agent()
    found = agent.embed(frames(3))
    assert found["c"].shape == (3, agent.model.encoder.size)
    assert found["z"].shape == (3, agent.own.stochastic)
    assert torch.equal(agent.embed(frames(3))["z"], found["z"])


# --- a run ----------------------------------------------------------------------------------


def run_config() -> RunConfig:
    config = preset_config("debug", method="plan2explore")
    schedule = replace(
        config.schedule,
        env_steps=4000,
        eval_episodes=1,
        eval_every=2000,
        replay_capacity=120,
        video=False,
    )
    env = replace(config.env, action_repeat=20)  # short episodes, of 50 decisions
    return replace(config, env=env, schedule=schedule, threads=1, seed=4)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("p2e") / "whole"
    return sibe.train(config=run_config(), out=out).directory


def rows(path: Path) -> dict[str, list[float]]:
    table = read_csv(path)
    return {n: list(table[n]) for n in table if n not in WALL_CLOCK_COLUMNS}


def final_tensors(run: Path) -> list[torch.Tensor]:
    found = checkpoint.load_newest(run / "checkpoint", map_location="cpu", report=print)
    assert found is not None
    state, tensors = [found[1]["agent"]], []
    while state:
        part = state.pop()
        if isinstance(part, dict):
            state += list(part.values())
        elif isinstance(part, torch.Tensor):
            tensors.append(part)
    return tensors


def test_a_run_that_broke_off_ends_the_same(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, update = tmp_path / "broken", Plan2Explore.update
    for limit in (17, 30):  # in the middle of the third and of the fourth episode

        def break_off(agent: Plan2Explore, chunk: Any, limit: int = limit) -> Any:
            if agent.updates == limit:
                raise KeyboardInterrupt
            return update(agent, chunk)

        monkeypatch.setattr(Plan2Explore, "update", break_off)
        with pytest.raises(KeyboardInterrupt):
            sibe.train(config=run_config(), out=out)
        monkeypatch.undo()
        assert checkpoint.list_steps(out / "checkpoint")
    sibe.train(config=run_config(), out=out)
    for name in CSV_FILES:
        assert rows(out / name) == rows(finished / name), name
    ours, theirs = final_tensors(out), final_tensors(finished)
    assert len(ours) == len(theirs) > 50
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_the_run_does_as_many_updates_as_it_announced(finished: Path) -> None:
    train = read_csv(finished / "train.csv")
    assert train["updates"][-1] == updates_per_run(run_config()) == (200 - 50) // 4 + 1
    for name in make_agent().metric_names():
        assert np.isfinite(train[name][-1]), name


def test_sac_announces_its_updates_truly() -> None:
    config = preset_config("debug", task="walker_walk")
    schedule = replace(config.schedule, env_steps=2000)
    assert updates_per_run(replace(config, schedule=schedule)) == 1000 - 50 + 1


def test_eval_and_load_policy(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for _ in range(2):
        with pytest.raises(SystemExit) as stop:
            cli.main(["eval", str(finished), "--episodes", "1"])
        assert not stop.value.code
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and "cartpole_swingup (clean)" in printed[0]
    policy = sibe.load_policy(finished)
    env = sibe.make_env("cartpole_swingup", size=32, stack=1)
    obs, _ = env.reset(seed=0)
    policy.reset()
    first = policy.act(obs)
    assert env.action_space.contains(first)
    policy.act(obs, explore=True)
    with pytest.raises(UserError, match="reset"):
        policy.act(np.stack([obs, obs]))
    policy.reset()
    np.testing.assert_allclose(policy.act(np.stack([obs, obs]))[1], first, rtol=1e-4, atol=1e-5)
    env.close()


# --- settings -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        *(("--sac.lr", "0.1"), ("--sac.lr=0.1",), ("--encoder.features", "3")),
        ("--sensor-dropout", "0.5"),
        *(("--stack", "3"), ("--size", "16"), ("--plan2explore.horizon", "0")),
        *(("--initial-steps", "3"), ("--replay-capacity", "5"), ("--plan2explore.mode", "both")),
        ("--sibe.alpha", "1"),
    ],
    ids=" ".join,
)
def test_flags_that_do_not_apply_are_refused_in_one_line(
    flags: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["train", "--method", "plan2explore", "--preset", "debug", "--out", str(tmp_path / "r")]
    with pytest.raises(SystemExit) as stop:
        cli.main([*args, *flags])
    error = capsys.readouterr().err.strip()
    assert stop.value.code == 2 and len(error.splitlines()) == 1, error


def test_sac_settings_are_refused_from_python_too() -> None:
    config = preset_config("debug", method="plan2explore")
    check(config)
    with pytest.raises(UserError, match=r"--sac\.\* does not apply"):
        check(replace(config, sac=SACConfig(lr=0.5)))
    with pytest.raises(UserError, match="standalone agent"):
        build_method("plan2explore", None, 4, 2)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("task", ["cartpole_swingup", "walker_walk", "reacher_easy"])
def test_presets_hold_together_and_survive_json(preset: str, task: str) -> None:
    config = preset_config(preset, task=task, method="plan2explore")
    check(config)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    assert config.env.stack == 1


def test_the_paper_preset_has_the_authors_values() -> None:
    config = preset_config("paper", task="walker_walk", method="plan2explore")
    assert config.method_config == Plan2ExploreConfig() and config.env.size == 64
    assert config.schedule.initial_steps == 2500  # five episodes at an action repeat of 2
    assert preset_config("paper", method="plan2explore").method_config.update_every == 1


@pytest.mark.parametrize("mode", ["combination", "zero_shot"])
def test_every_metric_and_every_setting_is_documented(mode: str) -> None:
    page = PAGE.read_text()
    agent = make_agent(mode=mode)
    names = [name.removeprefix("curious_") for name in agent.metric_names()]
    assert [name for name in names if f"`{name}`" not in page] == []
    fields = [name.replace("_", "-") for name in Plan2ExploreConfig.__dataclass_fields__]
    assert [name for name in fields if f"`{name}`" not in page] == []
