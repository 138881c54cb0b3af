"""The ladder: fixed episodes, stand-ins for the encoder, and the command as a whole."""

from __future__ import annotations

import copy
import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from sibe.agents.sac.agent import SAC
from sibe.analysis.representation.ridge import FOLDS
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import sampling
from sibe.cli.ladder import LadderCommand
from sibe.cli.main import main
from sibe.config.schema import RunConfig
from sibe.envs.backgrounds.background import BACKGROUND_FRAME
from sibe.errors import UserError
from sibe.ladder.alone import MethodAlone, train_alone
from sibe.ladder.decoding import mean_r2
from sibe.ladder.fixed_episodes import (
    FixedEpisodes,
    HeldOutSamples,
    play_again,
    show_episodes,
    state_scale,
)
from sibe.ladder.learner import Evaluation, Learner
from sibe.ladder.marks import marks
from sibe.ladder.recording import RecordEpisodes, Recording
from sibe.ladder.rungs import RUNGS, climb, make_ladder
from sibe.ladder.stand_in import StateEncoder, replace_encoder
from sibe.ladder.state_env import make_state_env, task_quantities, task_vector
from sibe.ladder.supervised import train_supervised
from sibe.ladder.table import RungResult, as_csv, as_text
from sibe.ladder.vector_replay import VectorReplay
from sibe.logs.csv_log import read_csv
from sibe.replay.replay import Replay
from sibe.replay.sampling import Sampling
from sibe.training.build import build_replay
from sibe.training.environment import make_training_env
from sibe.training.evaluation import make_eval_envs
from sibe.training.run import train

TASK = "cartpole_swingup"
CPU = torch.device("cpu")


def make_config(method: str = "sibe", background: str = "clean", **env: Any) -> RunConfig:
    config = preset_config("debug", task=TASK, method=method, background=background)
    schedule = replace(config.schedule, eval_episodes=1, video=False)
    return replace(
        config, schedule=schedule, env=replace(config.env, **env), threads=1, device="cpu"
    )


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    """Five short episodes of random play, cut after 12 steps."""
    env = make_state_env(make_config().env, split="train", error=np.zeros(5))
    rng = np.random.default_rng(0)
    recorded = []
    for number in range(FOLDS):
        states, rewards, actions = [env.reset(seed=number)[0]], [], []
        for _ in range(12):
            actions.append(rng.uniform(-1, 1, 1).astype(np.float32))
            state, reward, *_ = env.step(actions[-1])
            states.append(state)
            rewards.append(float(reward))
        recorded.append(
            Recording(
                number, 13 * number, np.stack(actions), tuple(rewards), np.stack(states), False
            )
        )
    env.close()
    return recorded


@pytest.fixture(scope="module")
def episodes(recordings: list[Recording]) -> FixedEpisodes:
    scale = state_scale(recordings)
    return show_episodes(make_config(background="noise").env, recordings, scale, shift=2)


def test_the_replay_of_vectors_never_crosses_an_episodes_end() -> None:
    replay = VectorReplay(50, 2, 1)
    for episode in range(20):  # overwrites several times
        replay.start(np.array([episode, 0], np.float32))
        for t in range(1 + episode % 7):
            vector = np.array([episode, t + 1], np.float32)
            replay.add([t], 10 * episode + t, float(t % 2), vector, last=t == episode % 7)
    chunk = replay.minibatch(Sampling(500, 3, 0, 1), np.random.default_rng(0))
    assert chunk.obs.shape == (4, 500, 2) and chunk.action.shape == (3, 500, 1)
    assert (chunk.obs[..., 0] == chunk.obs[0, :, 0]).all()
    assert (chunk.obs[1:, :, 1] - chunk.obs[:-1, :, 1] == 1).all()
    assert torch.equal(chunk.action[..., 0], chunk.obs[:-1, :, 1])
    assert torch.equal(chunk.reward, 10 * chunk.obs[:-1, :, 0] + chunk.obs[:-1, :, 1])
    assert torch.equal(chunk.discount, chunk.obs[:-1, :, 1] % 2)


@pytest.mark.parametrize("background", ["clean", "noise"])
def test_recorded_episodes_come_back_exactly(background: str, recordings: list[Recording]) -> None:
    config = make_config(background=background)
    env = make_training_env(config.env)
    for one in recordings[:2]:
        images = play_again(env, one)  # compares states and rewards itself
        assert len(images) == len(one.states)
        assert images[0].shape == (32, 32, 3)
        assert np.array_equal(task_vector(env), one.states[-1])
    again = play_again(env, recordings[0])
    assert all(map(np.array_equal, again, play_again(env, recordings[0])))
    for changed in (
        recordings[0]._replace(rewards=(1.0, *recordings[0].rewards[1:])),
        recordings[0]._replace(states=recordings[0].states + 1),
    ):
        with pytest.raises(UserError, match="does not repeat an episode"):
            play_again(env, changed)
    env.close()


def test_labels_belong_to_their_images(recordings: list[Recording]) -> None:
    config = make_config("none")
    config = replace(config, sac=replace(config.sac, shift=0))
    fixed = show_episodes(config.env, recordings, state_scale(recordings), shift=0)
    images = {image.tobytes(): state for image, state in zip(*fixed.moments[:2], strict=True)}
    chunk = fixed.replay.minibatch(sampling(config), np.random.default_rng(0))
    for image, label in zip(chunk.obs[0], chunk.action[0, :, 1:], strict=True):
        expected = images[image.numpy().tobytes()]
        assert np.allclose(label.numpy(), expected, atol=1e-5)
    assert np.unique(fixed.moments.fold[fixed.moments.held_out]).tolist() == [FOLDS - 1]


def test_errors_are_of_the_given_size_and_repeat_with_the_seed() -> None:
    config, spread = make_config().env, np.array([0.1, 0.2, 0.3, 0.0, 5.0])
    exact, wrong = (
        make_state_env(config, split="train", error=error) for error in (np.zeros(5), spread)
    )
    first = wrong.reset(seed=3)[0]
    action = np.zeros(1, np.float32)
    seen = [exact.reset(seed=3)[0] - first]
    for _ in range(124):
        seen.append(exact.step(action)[0] - wrong.step(action)[0])
    assert np.array_equal(wrong.reset(seed=3)[0], first)
    found = np.std(seen, axis=0)
    assert found[3] == 0
    moved = spread > 0
    assert np.allclose(found[moved], spread[moved], rtol=0.25)
    exact.close()
    wrong.close()


def test_a_stand_in_for_the_encoder_stays_and_the_rest_learns() -> None:
    config = make_config("none")
    agent = build_sac(config, 1, torch.Generator().manual_seed(0), CPU)
    encoder = StateEncoder(5, config.encoder.features, torch.Generator().manual_seed(1))
    replace_encoder(agent, encoder)
    replay, rng = VectorReplay(40, 5, 1), np.random.default_rng(0)
    replay.start(rng.normal(size=5).astype(np.float32))
    for _ in range(30):
        vector = rng.normal(size=5).astype(np.float32)
        encoder.moments.update(torch.from_numpy(vector))
        replay.add(rng.uniform(-1, 1, 1), 1.0, 1.0, vector, last=False)
    before = copy.deepcopy((agent.encoder, agent.critic, agent.actor))
    for _ in range(3):
        agent.update(replay.minibatch(sampling(config), rng))
    same = [_same(old, new) for old, new in zip(before, _parts(agent), strict=True)]
    assert same == [True, False, False]
    c = encoder(torch.randn(7, 5))
    assert c.shape == (7, config.encoder.features)
    x = torch.randn(1, 5)
    assert not torch.allclose(encoder(x), encoder(2 * x), atol=1e-2)  # the length is not lost


def _parts(agent: SAC) -> tuple[nn.Module, nn.Module, nn.Module]:
    return agent.encoder, agent.critic, agent.actor


def _same(old: nn.Module, new: nn.Module) -> bool:
    pairs = zip(old.parameters(), new.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_supervision_finds_what_is_in_the_image() -> None:
    """Brightness of the whole image is the state: R² rises from below 0 to nearly 1."""
    config = make_config("none", size=16, stack=1)
    config = replace(
        config,
        encoder=replace(config.encoder, lr=1e-3, strides=(2, 1)),
        sac=replace(config.sac, batch=32, shift=0),
    )
    rng = np.random.default_rng(0)
    levels = rng.uniform(-1, 1, (FOLDS, 21, 1))
    images = np.broadcast_to(
        (127.5 + 100 * levels[..., None, None]), (FOLDS, 21, 16, 16, 3)
    ).astype(np.uint8)
    replay = Replay(21 * FOLDS, (16, 16, 3), 2, stack=1, pad=0)
    for shown, level in zip(images[:-1], levels[:-1], strict=True):
        replay.start(shown[0])
        for t in range(20):
            labeled = np.array([0.0, level[t, 0]])
            replay.add(labeled, 0.0, 1.0, shown[t + 1], last=t == 19)
    fold = np.repeat(np.arange(FOLDS), 21)
    moments = HeldOutSamples(images.reshape(-1, 16, 16, 3), levels.reshape(-1, 1), fold)
    scores: dict[int, float] = {}
    train_supervised(
        config,
        FixedEpisodes(replay, moments, 1),
        200,
        CPU,
        lambda update, r2: scores.__setitem__(update, mean_r2(r2)),
    )
    assert list(scores) == marks(200) == [0, 25, 50, 100, 200]
    assert scores[0] < 0.5 and scores[200] > 0.9


def test_alone_moves_encoder_and_method_only(episodes: FixedEpisodes) -> None:
    config = make_config(background="noise")
    agent = build_sac(config, 1, torch.Generator().manual_seed(0), CPU)
    before = copy.deepcopy(agent.networks())
    temperature = agent.log_temperature.clone()
    reports: list[tuple[int, float, dict[str, Any]]] = []
    train_alone(agent, episodes, 4, lambda *report: reports.append(report))
    moved = {name for name, old in before.items() if not _same(old, agent.networks()[name])}
    assert moved == {"encoder", "target_encoder", "method"}
    assert torch.equal(agent.log_temperature, temperature)
    assert [update for update, *_ in reports] == [0, 1, 2, 4]
    assert np.isnan(reports[0][1]) and np.isfinite([loss for _, loss, _ in reports[1:]]).all()
    assert {name: r2.shape for name, r2 in reports[-1][2].items()} == {"z": (5,), "c": (5,)}


def test_single_frames_and_sums_of_rewards_as_in_the_cpu_preset(episodes: FixedEpisodes) -> None:
    plain, whole = (
        replace(
            config,
            encoder=replace(config.encoder, fusion="late", strides=(2, 2, 1)),
            sac=replace(config.sac, n_step=3, transitions="all"),
        )
        for config in (make_config("none"), make_config())
    )
    reports: list[Any] = []
    encoder = train_supervised(plain, episodes, 2, CPU, lambda *report: reports.append(report))
    assert np.isfinite(reports[-1][1]).all()
    agent = build_sac(plain, 1, torch.Generator().manual_seed(0), CPU)
    replace_encoder(agent, encoder)
    before = copy.deepcopy(agent.encoder)
    chunk = episodes.replay.minibatch(sampling(plain), np.random.default_rng(0))
    metrics = agent.update(chunk._replace(action=chunk.action[..., :1]))
    assert torch.isfinite(metrics["critic_loss"]) and _same(before, agent.encoder)
    train_alone(
        build_sac(whole, 1, torch.Generator().manual_seed(0), CPU),
        episodes,
        2,
        lambda *report: reports.append(report),
    )
    assert np.isfinite(reports[-1][1])


@pytest.mark.parametrize("method", ["rpc", "proto", "disagreement", "icm", "rnd", "db"])
def test_every_method_can_be_alone(method: str, episodes: FixedEpisodes) -> None:
    agent = build_sac(make_config(method), 1, torch.Generator().manual_seed(0), CPU)
    reports: list[Any] = []
    train_alone(agent, episodes, 2, lambda *report: reports.append(report))
    assert np.isfinite(reports[-1][1])


def test_plain_sac_has_nothing_to_do_alone(episodes: FixedEpisodes) -> None:
    config = make_config("none")
    agent = build_sac(config, 1, torch.Generator().manual_seed(0), CPU)
    chunk = episodes.replay.minibatch(sampling(config), np.random.default_rng(0))
    with pytest.raises(UserError, match="no loss of its own"):
        MethodAlone(agent).update(chunk._replace(action=chunk.action[..., :1]))


def test_rung_agent_is_what_train_does(tmp_path: Path) -> None:
    config = make_config()
    schedule = replace(config.schedule, env_steps=1000, eval_every=900)
    config = replace(config, schedule=schedule)
    train(config, tmp_path / "run")
    ladder = make_ladder(config, config, env_steps=1000, updates=1, errors=(), rungs=("agent",))
    rows = climb(ladder, lambda _: None)
    expected = read_csv(tmp_path / "run" / "eval.csv")
    assert [row.step for row in rows] == expected["frame"].tolist()
    assert np.allclose([row.value for row in rows], expected["episode_reward"], rtol=1e-6)


def test_the_learner_stops_with_an_episode_and_tells_its_evaluations() -> None:
    config = make_config("none")
    config = replace(config, schedule=replace(config.schedule, env_steps=900))
    env, (eval_env,) = make_training_env(config.env), make_eval_envs(config.env, 1)
    agent = build_sac(config, 1, torch.Generator().manual_seed(0), CPU)
    replay = build_replay(config, env)
    told: list[Evaluation] = []
    learner = Learner(config, agent, env, [eval_env], replay, stack=3, say=told.append)
    learner.learn()
    assert len(replay) == 125
    assert told == learner.evaluations and told[-1].env_step == 1000
    env.close()
    eval_env.close()


def test_episodes_are_recorded_as_they_are_played() -> None:
    env = RecordEpisodes(make_state_env(make_config().env, split="train", error=np.zeros(5)))
    rng = np.random.default_rng(0)
    for number in range(2):
        env.reset(seed=number, options={BACKGROUND_FRAME: 126 * number})
        over = False
        while not over:
            *_, over, _ = env.step(rng.uniform(-1, 1, 1).astype(np.float32))
    assert [(one.seed, one.shown, one.terminated) for one in env.recordings] == [
        (0, 0, False),
        (1, 126, False),
    ]
    assert [len(one.actions) for one in env.recordings] == [125, 125]
    shown = make_training_env(make_config(background="noise").env)
    for one in env.recordings:
        assert len(play_again(shown, one)) == 126  # compares states and rewards itself
    shown.close()
    env.close()


class _ImageOnly(gym.Env[Any, Any]):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str) -> None:
        self.render_mode = render_mode
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.observation_space = gym.spaces.Box(0, 255, (20, 20, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros((20, 20, 3), np.uint8), {}


class _Toy(_ImageOnly):
    """A bright square to be pushed to the middle; it falls off the edges."""

    def __init__(self, render_mode: str) -> None:
        super().__init__(render_mode)
        self.observation_space = gym.spaces.Box(-2, 2, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        self.place, self.speed, self.steps = self.np_random.uniform(-0.5, 0.5), 0.0, 0
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.speed = float(np.clip(self.speed + 0.05 * float(action[0]), -0.2, 0.2))
        self.place += self.speed
        self.steps += 1
        return self._observed(), 1 - abs(self.place), abs(self.place) > 1, self.steps == 40, {}

    def render(self) -> Any:
        image = np.zeros((32, 32, 3), np.uint8)
        column = int(np.clip(14 + 14 * self.place, 0, 28))
        image[14:18, column : column + 4] = 255
        return image

    def _observed(self) -> Any:
        return np.array([self.place, self.speed], np.float32)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    made: dict[str, Any] = {"LadderImage-v0": _ImageOnly, "LadderToy-v0": _Toy}
    for name, kind in made.items():
        gym.register(name, kind, disable_env_checker=True)
    yield
    for name in made:
        del gym.registry[name]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--rungs state suprvised", "did you mean supervised?"),
        ("--method plan2explore", "the ladder needs a method on SAC"),
        ("--method none", "leave the rung alone out"),
        ("--method sibee", "did you mean sibe"),
        ("--errors 0", "--errors"),
        ("--errors", "--errors needs a number"),
        ("--rungs", "--rungs needs a name"),
        ("--updates 0", "--updates"),
        ("--env-steps 0", "--env-steps"),
        ("--task walker_wlk", "did you mean walker_walk"),
        ("--background nois", "did you mean noise?"),
        ("--out nowhere/x.csv", "there is no folder nowhere"),
        ("--task LadderImage-v0", "has no vector observation"),
        ("--env-steps 900 --rungs alone", "need 5 episodes"),
    ],
)
def test_bad_input_is_one_line(flags: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["ladder", "--preset", "debug", "--threads", "1", *flags.split()])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and words in err and err.count("\n") == 1


def test_quantities_have_names() -> None:
    names = task_quantities(make_config().env)
    assert names == ("position 0", "position 1", "position 2", "velocity 0", "velocity 1")
    assert LadderCommand().rungs == RUNGS


def test_the_table_shows_what_there_is() -> None:
    rows = [
        RungResult("state", "return", "", "", 1000, 12.34),
        RungResult("agent", "return", "", "", 2000, 5.0),
    ]
    text = as_text(rows)
    assert text.splitlines()[1].split() == ["state", "12.3", "-"]
    many = [RungResult("alone", "R2", "c", f"q{i}", 0, float("nan")) for i in range(20)]
    assert "and 11 more quantities" in as_text(many)
    assert as_csv(rows).splitlines()[1] == "state,return,,,1000,12.34"


def test_the_whole_ladder_gives_one_result_for_one_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = "--env-steps 400 --updates 4 --errors 0.1 0.5 --seed 3 --threads 1 --device cpu"
    line = ["ladder", "--preset", "debug", "--task", "LadderToy-v0", *flags.split(), "--out"]
    for name in ("first.csv", "second.csv"):
        with pytest.raises(SystemExit) as stop:
            main([*line, str(tmp_path / name)])
        assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "Return at env step" in out and "R² on held-out episodes" in out
    first, second = ((tmp_path / name).read_text() for name in ("first.csv", "second.csv"))
    assert first == second
    rows = list(csv.DictReader(first.splitlines()))
    returns = [row["rung"] for row in rows if row["measure"] == "return"]
    assert list(dict.fromkeys(returns)) == [
        "state",
        "error 0.1",
        "error 0.5",
        "supervised",
        "agent",
    ]
    known = {(row["rung"], row["latent"]) for row in rows if row["measure"] == "R2"}
    assert known == {("supervised", "c"), ("alone", "c"), ("alone", "z")}
    assert sum(row["measure"] == "loss" for row in rows) == 3
