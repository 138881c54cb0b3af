"""SIBE across sensors, and options of SAC's encoder of several sensors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from method_inputs import random_latents, seeded
from torch import Tensor

from sibe.agents.sac.agent import SAC
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import check
from sibe.config.schema import EnvConfig, RunConfig
from sibe.errors import UserError
from sibe.methods.base import Latents, SensorLatents
from sibe.methods.cross_sensor import cross_sensor_terms
from sibe.methods.sibe import SequentialBottleneck, SIBEConfig
from sibe.replay.chunk import Chunk

D, A, L, B, S = 6, 2, 2, 16, 4


def make_config(method: str, changes: dict[str, Any], **of_encoder: Any) -> RunConfig:
    config = preset_config("debug", method=method)
    encoder = replace(config.encoder, **of_encoder)
    return replace(config, env=replace(config.env, **changes), encoder=encoder)


def make_agent(config: RunConfig, seed: int = 0) -> SAC:
    size = S if config.env.seen.state else 0
    return build_sac(config, A, seeded(seed), torch.device("cpu"), size)


def make_chunk(config: RunConfig, seed: int = 0) -> Chunk:
    g, steps, n = seeded(seed), config.sac.chunk, config.sac.batch
    late = config.encoder.fusion == "late"
    stack, size = config.env.stack, config.env.size
    frames = (steps + stack, n, size, size, 3) if late else (steps + 1, n, size, size, 3 * stack)
    obs: dict[str, Tensor] = {
        name: torch.randint(0, 256, frames, generator=g, dtype=torch.uint8)
        for name in config.env.seen.views
    }
    if config.env.seen.state:
        obs["state"] = torch.randn(steps + 1, n, S, generator=g)
    action = torch.rand(steps, n, A, generator=g) * 2 - 1
    reward, discount = torch.rand(steps, n, generator=g), torch.ones(steps, n)
    return Chunk(obs, action, reward, discount, None, stack if late else 1)


def test_late_fusion_and_shared_cameras_learn_too() -> None:
    changes = {"cameras": (0, 1), "sensors": ("pixels", "state")}
    config = make_config("sibe", changes, fusion="late", share_cameras=True, strides=(2, 2, 1))
    check(config)
    agent = make_agent(config)
    before = agent.encoder.state_dict()["encoders.cameras.first.weight"].clone()
    agent.update(make_chunk(config))
    assert (agent.encoder.state_dict()["encoders.cameras.first.weight"] != before).any()


def test_dropped_sensors_change_what_is_learned_and_nothing_else() -> None:
    def update(share: float) -> dict[str, Tensor]:
        config = make_config("none", {"sensors": ("pixels", "state"), "sensor_dropout": share})
        agent = make_agent(config)
        agent.update(make_chunk(config))
        return agent.encoder.state_dict()

    whole, dropped = update(0.0), update(0.9)
    assert torch.equal(whole["absent"], torch.zeros(2, 16))  # never missing, never learned
    assert (dropped["absent"] != 0).any()


def cross(config: RunConfig) -> RunConfig:
    return replace(config, method_config=replace(config.method_config, sensors="cross"))


def test_across_sensors_every_network_learns_and_what_is_missing_too() -> None:
    config = cross(make_config("sibe", {"sensors": ("pixels", "state")}))
    check(config)
    agent = make_agent(config)
    metrics = agent.update(make_chunk(config))
    assert list(metrics) == agent.metric_names()
    pairs = math.log(config.sac.chunk * config.sac.batch)
    assert 0 < metrics["cross_infonce"] < 3 * pairs and metrics["cross_kl"] > 0
    for key, parameter in agent.encoder.named_parameters():
        assert parameter.grad is not None and (parameter.grad != 0).any(), key


def test_off_by_default_the_loss_is_that_of_the_joint_c() -> None:
    config = make_config("sibe", {"sensors": ("pixels", "state")})
    agent = make_agent(config)
    assert not agent.method.sees_sensors
    assert "cross_infonce" not in agent.metric_names()


@pytest.mark.parametrize(
    ("changes", "across", "words"),
    [
        ({"sensor_dropout": 0.3}, False, "--sensor-dropout needs two sensors"),
        ({"sensors": ("state",)}, True, "--sibe.sensors cross needs two sensors"),
    ],
)
def test_one_sensor_is_too_few(changes: dict[str, Any], across: bool, words: str) -> None:
    config = make_config("sibe", changes)
    with pytest.raises(UserError, match=words):
        check(cross(config) if across else config)


def test_sharing_needs_several_cameras() -> None:
    config = make_config("none", {}, share_cameras=True)
    with pytest.raises(UserError, match="needs several cameras"):
        check(config)
    assert EnvConfig().seen.bare


# --- the terms themselves ------------------------------------------------------------------------


def terms(c: Tensor, c_next: Tensor, **changes: Any) -> tuple[float, float]:
    """Terms of sensors' ``[K, L, B, D]`` with z = the mean of an untrained, near-exact head."""
    config = SIBEConfig(latent=D, hidden=32, first_std=1e-3, **changes)
    bottleneck = SequentialBottleneck(D, A, config, generator=seeded())
    joint = random_latents(D, A, c.shape[1], c.shape[2], seed=3)
    x = Latents(c.mean(0), joint.c_next, joint.action, joint.reward)
    out = cross_sensor_terms(bottleneck, x, SensorLatents(c, c_next), seeded(1))
    return out.infonce.item(), out.kl.item()


def test_what_sensors_share_is_paid_and_what_one_sees_alone_is_not() -> None:
    g = seeded(5)
    shared, private = torch.randn(2, 1, L, B, D, generator=g)
    same = shared.expand(2, L, B, D)
    apart = torch.cat((shared, private))
    told, _ = terms(same, same)
    silent, _ = terms(apart, apart)
    # Neither sensor tells the other's future: no better than guessing among N candidates.
    assert told < 0.95 * math.log(L * B) < 0.99 * math.log(L * B) < silent


def test_a_sensor_is_not_asked_to_predict_itself() -> None:
    """Each sensor predicts its own future exactly; the loss, across the two, does not notice."""
    c = torch.randn(2, L, B, D, generator=seeded(6))
    own, _ = terms(c, c)
    other, _ = terms(c, c.flip(0))  # sensor 1's future is what sensor 0 showed
    assert other < own


def test_the_terms_are_means_over_pairs_and_sensors() -> None:
    c = torch.randn(3, L, B, D, generator=seeded(7))
    config = SIBEConfig(latent=D, hidden=32, first_std=1e-6)
    bottleneck = SequentialBottleneck(D, A, config, generator=seeded())
    joint = random_latents(D, A, L, B, seed=3)
    out = cross_sensor_terms(bottleneck, joint, SensorLatents(c, c), seeded(1))

    def pair(i: int, j: int) -> Tensor:
        z, later = (bottleneck.encode(c[k]) for k in (i, j))
        query = bottleneck.prediction(bottleneck.projection(torch.cat((z, joint.action), -1)))
        scores = query.flatten(0, 1) @ bottleneck.bilinear.weight
        scores = scores @ bottleneck.target_prediction(later).flatten(0, 1).T
        loss: Tensor = -scores.log_softmax(-1).diagonal().mean()
        return loss

    expected = torch.stack([pair(i, j) for i in range(3) for j in range(3) if i != j]).mean()
    torch.testing.assert_close(out.infonce, expected, rtol=1e-3, atol=1e-3)


def test_without_compression_the_divergence_is_only_watched() -> None:
    c = torch.randn(2, L, B, D, generator=seeded(8))
    config = SIBEConfig(latent=D, hidden=32, alpha=0.0)
    bottleneck = SequentialBottleneck(D, A, config, generator=seeded())
    out = cross_sensor_terms(
        bottleneck, random_latents(D, A, L, B, seed=3), SensorLatents(c, c), seeded(1)
    )
    assert not out.kl.requires_grad and out.infonce.requires_grad
