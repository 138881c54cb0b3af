"""SAC learns from an episode that terminates up to its very last transition, with any preset."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from sibe.agents.sac import losses
from sibe.agents.sac.agent import SAC
from sibe.agents.sac.terminations import Terminations, find_terminations
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.methods.base import Latents, Method, MethodOutput
from sibe.replay.chunk import Chunk
from sibe.replay.replay import Replay

PRESETS = pytest.mark.parametrize("preset", ["paper", "cpu", "debug"])


def record(config: RunConfig, lengths: list[int], *, terminated: bool, side: int = 8) -> Replay:
    """Return episodes whose t-th transition has action and reward t + 1."""
    shape = (side, side, 3)
    replay = Replay(200, shape, 1, stack=config.env.stack, pad=sampling(config).shift)
    for steps in lengths:
        replay.start(np.zeros(shape, np.uint8))
        for time in range(steps):
            last = time == steps - 1
            discount = 0.0 if last and terminated else 1.0
            frame = np.full(shape, time + 1, np.uint8)
            replay.add([time + 1], time + 1, discount, frame, last=last)
    return replay


def draw(config: RunConfig, replay: Replay, batch: int = 4000) -> Chunk:
    wanted = sampling(config)
    return replay.minibatch(wanted._replace(batch=batch), np.random.default_rng(0))


def terminations(config: RunConfig, chunk: Chunk) -> Terminations:
    ended = find_terminations(chunk.discount, config.sac.chunk, config.sac.transitions)
    assert ended is not None
    return ended


@PRESETS
@pytest.mark.parametrize("method", ["sibe", "none"])
@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_every_transition_of_a_terminating_episode_is_learned_from(
    preset: str, method: str, steps: int
) -> None:
    config = preset_config(preset, method=method)
    chunk = draw(config, record(config, [steps] * 5, terminated=True))
    rows = terminations(config, chunk).rows
    length = config.sac.chunk
    counts = Counter(chunk.reward[:length][rows].int().tolist())
    assert set(counts) == set(range(1, steps + 1))  # 0 would be after the end
    if config.sac.transitions == "first":
        # Those after the first of a last chunk are drawn together.
        apart = [counts[time] for time in range(1, steps - length + 2)]
        assert len(apart) < 2 or chisquare(apart).pvalue > 1e-3
        assert len({counts[time] for time in range(max(1, steps - length + 1), steps + 1)}) == 1


@PRESETS
def test_a_method_sees_only_transitions_that_happened(preset: str) -> None:
    config = preset_config(preset, method="sibe")
    chunk = draw(config, record(config, [1, 2, 3, 5], terminated=True))
    ended, length = terminations(config, chunk), config.sac.chunk
    seen = chunk.reward[:length, ended.chunks]
    assert seen.min() > 0 and (seen[1:] - seen[:-1]).eq(1).all()
    assert 0 < len(ended.chunks) < chunk.reward.shape[1]


@PRESETS
def test_no_chunk_goes_beyond_a_time_limit(preset: str) -> None:
    config = preset_config(preset, method="sibe")
    chunk = draw(config, record(config, [10], terminated=False))
    assert find_terminations(chunk.discount, config.sac.chunk, config.sac.transitions) is None
    assert chunk.discount.eq(1).all() and chunk.reward.min() == 1
    assert chunk.reward[0].max() == 10 - len(chunk.reward) + 1


@PRESETS
@pytest.mark.parametrize("steps", [1, 2, 10])
def test_targets_at_the_end_against_the_sum_of_what_is_left(preset: str, steps: int) -> None:
    config = preset_config(preset, method="sibe")
    gamma, n, length = config.sac.discount, config.sac.n_step, config.sac.chunk
    chunk = draw(config, record(config, [steps], terminated=True), 300)
    bonus = torch.full((length, chunk.reward.shape[1]), 0.5)
    total, weight = losses.n_step(chunk.reward, bonus, gamma * chunk.discount)
    for row, column in terminations(config, chunk).rows.nonzero().tolist():
        time = int(chunk.reward[row, column]) - 1
        left = range(min(n, steps - time))
        expected = sum(gamma**i * (time + i + 1 + 0.5) for i in left)
        assert float(total[row, column]) == pytest.approx(expected, rel=1e-5)
        bootstrap = gamma**n if time + n < steps else 0.0
        assert float(weight[row, column]) == pytest.approx(bootstrap, rel=1e-5)


def test_after_the_end_the_picture_stands_still() -> None:
    config = preset_config("cpu", method="sibe")
    chunk = draw(config, record(config, [10], terminated=True))
    # Of the chunks that start at the last transition but one, two transitions are left of four.
    short = chunk.reward[0] == 9
    assert short.any() and chunk.reward[2:, short].eq(0).all()
    assert chunk.action[2:, short].eq(0).all() and chunk.discount[1:, short].eq(0).all()
    assert isinstance(chunk.obs_target, torch.Tensor)
    assert chunk.target(3, 5)[-2:, short].eq(10).all()


class Recorder(Method):
    """Pays 0.5 for each transition and remembers what it was shown."""

    def forward(self, x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        self.shown = x
        return MethodOutput(x.c.sum() * 0, torch.full_like(x.reward, 0.5), {})


def agent_with_recorder(config: RunConfig) -> tuple[SAC, Recorder]:
    agent = build_sac(config, 1, torch.Generator().manual_seed(0), torch.device("cpu"))
    recorder = Recorder()
    agent.method = recorder
    return agent, recorder


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("transitions", ["first", "all"])
def test_an_update_against_transitions_one_by_one(
    transitions: Literal["first", "all"], n_step: int
) -> None:
    config = preset_config("debug", method="none")
    sac = replace(config.sac, chunk=2, n_step=n_step, transitions=transitions, batch=30, shift=0)
    config = replace(config, sac=replace(sac, reward_scale=1.0))
    agent, recorder = agent_with_recorder(config)
    replay = record(config, [1, 2, 3, 6], terminated=True, side=config.env.size)
    chunk = draw(config, replay, 30)
    with torch.no_grad():  # the same action for every state, and no entropy
        agent.actor.trunk[-1].get_parameter("weight").zero_()
        agent.actor.trunk[-1].get_parameter("bias").copy_(torch.tensor([0.3, -40.0]))
        agent.log_temperature.fill_(-50.0)
        errors = []
        for b in range(30):
            ends = chunk.discount[:, b].tolist()
            steps = ends.index(0.0) + 1 if 0.0 in ends else len(ends) + 1
            paid = 0.5 if steps >= 2 else 0.0  # one transition is too short for the method
            learned = range(min(steps, 2)) if transitions == "all" or steps <= 2 else [0]
            for t in learned:
                left = range(min(n_step, steps - t))
                target = sum(sac.discount**i * (chunk.reward[t + i, b] + paid) for i in left)
                if t + n_step < steps:
                    obs = chunk.target(t + n_step, t + n_step + 1)
                    later = agent.target_encoder(obs)[0, b : b + 1]
                    values = agent.target_critic(later, torch.tensor([[0.3]]).tanh())
                    target = target + sac.discount**n_step * torch.minimum(*values)
                c = agent.encoder(chunk.online(t, t + 1))[0, b : b + 1]
                q1, q2 = agent.critic(c, chunk.action[t, b : b + 1])
                errors.append((q1 - target) ** 2 + (q2 - target) ** 2)
        expected = float(torch.stack(errors).mean())
    metrics = agent.update(chunk)
    assert float(metrics["critic_loss"]) == pytest.approx(expected, rel=1e-4)
    seen = recorder.shown.reward
    assert (seen[1] - seen[0]).eq(1).all() and 0 < seen.shape[1] < 30


def test_episodes_too_short_for_the_method_are_better_than_none() -> None:
    config = preset_config("debug", method="sibe")
    agent = build_sac(config, 1, torch.Generator().manual_seed(0), torch.device("cpu"))
    replay = record(config, [1] * 5, terminated=True, side=config.env.size)
    for seed in range(3):
        chunk = replay.minibatch(sampling(config), np.random.default_rng(seed))
        assert all(torch.isfinite(value).all() for value in agent.update(chunk).values())
