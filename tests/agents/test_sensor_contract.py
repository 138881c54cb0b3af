"""What every method, and every standalone agent, must keep with any set of sensors."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from method_inputs import seeded
from torch import Tensor

from sibe.agents.protocol import Agent
from sibe.catalogue.build import build_agent
from sibe.catalogue.presets import preset_config
from sibe.catalogue.registry import ENTRIES
from sibe.catalogue.run_config import check, from_json, sampling, to_json
from sibe.config.schema import RunConfig
from sibe.replay.chunk import Chunk

A, S = 2, 4
SENSOR_SETS: dict[str, dict[str, Any]] = {
    "pixels and state": {"sensors": ("pixels", "state"), "sensor_dropout": 0.3},
    "two cameras": {"cameras": (0, 1)},
    "cameras and state": {"sensors": ("pixels", "state"), "cameras": (0, 1)},
    "state": {"sensors": ("state",)},
}
every_agent = pytest.mark.parametrize("name", ENTRIES)
every_set = pytest.mark.parametrize("sensors", SENSOR_SETS)


def make_config(name: str, sensors: str) -> RunConfig:
    config = preset_config("debug", method=name)
    config = replace(config, env=replace(config.env, **SENSOR_SETS[sensors]))
    check(config)
    return config


def make_agent(config: RunConfig, seed: int = 0) -> Agent:
    size = S if config.env.seen.state else 0
    return build_agent(config, A, seeded(seed), torch.device("cpu"), size)


def make_chunk(config: RunConfig, seed: int = 0) -> Chunk:
    g, wanted = seeded(seed), sampling(config)
    steps, n, size = wanted.length, wanted.batch, config.env.size
    frames = (steps + 1, n, size, size, 3 * config.env.stack)
    obs: dict[str, Tensor] = {
        name: torch.randint(0, 256, frames, generator=g, dtype=torch.uint8)
        for name in config.env.seen.views
    }
    if config.env.seen.state:
        obs["state"] = torch.randn(steps + 1, n, S, generator=g)
    action = torch.rand(steps, n, A, generator=g) * 2 - 1
    return Chunk(obs, action, torch.rand(steps, n, generator=g), torch.ones(steps, n))


def states(config: RunConfig, seed: int = 7) -> dict[str, np.ndarray]:
    return {name: part[0].numpy() for name, part in make_chunk(config, seed).obs.items()}


def trained(config: RunConfig, seed: int = 0) -> Agent:
    agent = make_agent(config, seed)
    for i in range(2):
        agent.update(make_chunk(config, i))
    return agent


def copied(state: Any) -> Any:
    """State as a checkpoint keeps it: bytes and back, plain values and tensors only."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@every_agent
@every_set
def test_it_learns_and_continues_exactly(name: str, sensors: str) -> None:
    config = make_config(name, sensors)
    assert from_json(to_json(config)) == config
    agent, other = trained(config), make_agent(config, seed=9)
    other.load_state_dict(copied(agent.state_dict()))
    # What an update draws, dropped sensors too, comes from the generator that was saved.
    for i in range(2):
        ours, theirs = (one.update(make_chunk(config, 5 + i)) for one in (agent, other))
        assert list(ours) == agent.metric_names()
        assert same(ours, theirs), [k for k in ours if not torch.equal(ours[k], theirs[k])]
        assert all(torch.isfinite(value) for value in ours.values())
    for part, network in agent.networks().items():
        assert same(network.state_dict(), other.networks()[part].state_dict()), part


@every_agent
@every_set
def test_learning_moves_the_encoder_of_every_sensor(name: str, sensors: str) -> None:
    config = make_config(name, sensors)
    before, agent = make_agent(config).policy_networks(), trained(config)
    moved = [
        f"{part}.{key}"
        for part, network in agent.policy_networks().items()
        for key, value in network.state_dict().items()
        if not torch.equal(value, before[part].state_dict()[key])
    ]
    for sensor in config.env.seen.names:
        assert any(f"encoders.{sensor}." in key for key in moved), sensor
    # What stands for a missing sensor is learned where sensors are dropped, and only there.
    dropped = any(key.endswith("absent") for key in moved)
    assert dropped == (config.env.sensor_dropout > 0)


@every_agent
@every_set
def test_an_export_acts_and_embeds_alike(name: str, sensors: str) -> None:
    config = make_config(name, sensors)
    agent, other = trained(config), make_agent(config, seed=9)
    for part, network in agent.policy_networks().items():
        other.policy_networks()[part].load_state_dict(copied(network.state_dict()))
    seen = states(config)
    np.testing.assert_array_equal(
        agent.policy().act(seen, None), other.policy().act(seen, None), strict=True
    )
    assert same(agent.embed(seen), other.embed(seen))


@every_agent
@pytest.mark.parametrize("sensors", ["pixels and state", "cameras and state"])
def test_each_sensor_is_seen_unless_it_is_missing(name: str, sensors: str) -> None:
    config = make_config(name, sensors)
    agent, seen, other = trained(config), states(config), states(config, 8)
    names = config.env.seen.names
    for k, sensor in enumerate(names):
        changed = {**seen, sensor: other[sensor]}
        missing = np.zeros((len(seen[sensor]), len(names)), bool)
        assert not same(agent.embed(seen), agent.embed(changed)), sensor
        missing[:, k] = True
        assert same(agent.embed(seen, missing), agent.embed(changed, missing)), sensor
        one, two = (agent.policy().act(obs, None, missing=missing) for obs in (seen, changed))
        np.testing.assert_array_equal(one, two)
        # Nothing missing is the policy itself; and what is missing is noticed.
        nothing = np.zeros_like(missing)
        whole = agent.policy().act(seen, None)
        np.testing.assert_array_equal(agent.policy().act(seen, None, missing=nothing), whole)
        assert not np.array_equal(one, whole)


@every_agent
def test_one_seed_gives_one_result(name: str) -> None:
    config = make_config(name, "pixels and state")
    agents = [trained(config, seed) for seed in (1, 1, 2)]
    torch.rand(1)  # the global generator must not matter
    first, again, other = (agent.update(make_chunk(config, 5)) for agent in agents)
    assert same(first, again) and not same(first, other)
