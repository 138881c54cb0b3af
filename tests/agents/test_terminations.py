"""SAC learns from an episode that terminates up to its very last transition, with any preset."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sibe.agents.sac import losses
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.replay.chunk import Chunk
from sibe.replay.replay import Replay

STEPS, SHAPE = 10, (8, 8, 3)


def play(config: RunConfig, *, terminated: bool) -> Chunk:
    """Draw a thousand chunks from one episode whose t-th transition is rewarded with t + 1."""
    wanted = sampling(config)
    replay = Replay(50, SHAPE, 1, stack=config.env.stack, pad=wanted.shift)
    replay.start(np.zeros(SHAPE, np.uint8))
    for time in range(STEPS):
        last = time == STEPS - 1
        frame = np.full(SHAPE, time + 1, np.uint8)
        replay.add([time + 1], time + 1, 0.0 if last and terminated else 1.0, frame, last=last)
    return replay.minibatch(wanted._replace(batch=1000), np.random.default_rng(0))


def learned_from(config: RunConfig, values: torch.Tensor) -> torch.Tensor:
    """Return what SAC learns from of ``values [L + n - 1, B]``."""
    return values[: config.sac.chunk if config.sac.transitions == "all" else 1]


@pytest.mark.parametrize("method", ["sibe", "none"])
@pytest.mark.parametrize("preset", ["paper", "cpu", "debug"])
def test_every_transition_of_a_terminating_episode_is_learned_from(
    preset: str, method: str
) -> None:
    config = preset_config(preset, method=method)
    chunk = play(config, terminated=True)
    times = learned_from(config, chunk.reward)
    # 0 would be a transition after the end.
    assert set(times.unique().tolist()) == set(range(1, STEPS + 1))
    assert learned_from(config, chunk.discount)[times == STEPS].eq(0).all()
    assert learned_from(config, chunk.discount)[times < STEPS].eq(1).all()


@pytest.mark.parametrize("preset", ["paper", "cpu", "debug"])
def test_no_chunk_goes_beyond_a_time_limit(preset: str) -> None:
    config = preset_config(preset, method="sibe")
    chunk = play(config, terminated=False)
    assert chunk.discount.eq(1).all() and chunk.reward.min() == 1
    assert chunk.reward[0].max() == STEPS - len(chunk.reward) + 1


@pytest.mark.parametrize("preset", ["paper", "cpu", "debug"])
def test_targets_at_the_end_against_the_sum_of_what_is_left(preset: str) -> None:
    config = preset_config(preset, method="sibe")
    gamma, n, length = config.sac.discount, config.sac.n_step, config.sac.chunk
    chunk = play(config, terminated=True)
    bonus = torch.full((length, chunk.reward.shape[1]), 0.5)
    total, weight = losses.n_step(chunk.reward, bonus, gamma * chunk.discount)
    for row, column in np.ndindex(*learned_from(config, chunk.reward).shape):
        time = int(chunk.reward[row, column]) - 1
        left = range(min(n, STEPS - time))
        expected = sum(gamma**i * (time + i + 1 + 0.5) for i in left)
        assert float(total[row, column]) == pytest.approx(expected, rel=1e-5)
        bootstrap = gamma**n if time + n < STEPS else 0.0
        assert float(weight[row, column]) == pytest.approx(bootstrap, rel=1e-5)


def test_after_the_end_the_picture_stands_still() -> None:
    config = preset_config("cpu", method="sibe")
    chunk = play(config, terminated=True)
    # Of the chunks that start at the last transition but one, two transitions are left of four.
    short = chunk.reward[0] == STEPS - 1
    assert short.any() and chunk.reward[2:, short].eq(0).all()
    assert chunk.action[2:, short].eq(0).all() and chunk.discount[1:, short].eq(0).all()
    assert isinstance(chunk.obs_target, torch.Tensor)
    newest = chunk.target(3, 5)[-2:, short]
    assert newest.eq(STEPS).all()
