"""Plan2Explore's world model over several sensors: what it sees, rebuilds and does without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from method_inputs import seeded
from torch import Tensor
from torch.distributions import Independent, Normal

import sibe
from sibe.agents.plan2explore.agent import Plan2Explore
from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.agents.plan2explore.images import ConvEncoder
from sibe.agents.plan2explore.sensors import JointEncoder, symlog, to_inputs
from sibe.agents.plan2explore.world_model import WorldModel, reconstruction_losses, state_loss
from sibe.catalogue.presets import preset_config
from sibe.catalogue.registry import find_agent
from sibe.catalogue.run_config import check
from sibe.config.schema import RunConfig
from sibe.envs.sensors import Sensors
from sibe.errors import UserError
from sibe.replay.chunk import Chunk

BOTH = Sensors(state=True)
ALL = Sensors(state=True, cameras=(0, 1))
SIZE, S, A = 32, 4, 2


def small(**changes: Any) -> Plan2ExploreConfig:
    config: Plan2ExploreConfig = preset_config("debug", method="plan2explore").method_config
    return replace(config, **changes)


def make_model(sensors: Sensors, config: Plan2ExploreConfig | None = None, **more: Any) -> Any:
    state_size = S if sensors.state else 0
    return WorldModel(
        config or small(),
        *(SIZE, A),
        sensors=sensors,
        state_size=state_size,
        generator=seeded(),
        **more,
    )


def recording(sensors: Sensors, length: int = 6, batch: int = 4) -> Chunk:
    """A few steps of ball_in_cup, seen by ``sensors``, as B sequences of T frames."""
    kinds: Any = [*(["pixels"] if sensors.pixels else []), *(["state"] if sensors.state else [])]
    env = sibe.make_env(
        *("ball_in_cup_catch", "clean"),
        sensors=kinds,
        cameras=sensors.cameras,
        size=SIZE,
        stack=1,
        action_repeat=8,
    )
    rng, obs, action = np.random.default_rng(0), [], []
    for b in range(batch):
        seen = [env.reset(seed=b)[0]]
        for _ in range(length - 1):
            action.append(rng.uniform(-1, 1, A).astype(np.float32))
            seen.append(env.step(action[-1])[0])
        obs.append(seen)
    env.close()
    readings = {
        name: torch.from_numpy(np.stack([[step[name] for step in seen] for seen in obs], axis=1))
        for name in sensors.names
    }
    shape = (batch, length - 1)
    taken = torch.from_numpy(np.stack(action)).reshape(*shape, A).transpose(0, 1)
    return Chunk(readings, taken, torch.zeros(shape).T, torch.ones(shape).T)


def test_an_embedding_is_that_of_each_sensor_side_by_side() -> None:
    model, chunk = make_model(ALL), recording(ALL, 2, 3)
    inputs = to_inputs(chunk.obs)
    with torch.no_grad():
        embedding = model.embed(chunk.obs)
        parts = [model.encoder.encoders[name](inputs[name]) for name in ALL.names]
    assert ALL.names == ("pixels_0", "pixels_1", "state")
    torch.testing.assert_close(embedding, torch.cat(parts, -1), rtol=0, atol=0)
    camera = ConvEncoder(SIZE, small().depth).size
    assert embedding.shape == (2, 3, 2 * camera + small().hidden) == (2, 3, model.encoder.size)


def test_vectors_are_compressed_and_their_loss_is_a_unit_gaussian() -> None:
    vector = torch.tensor([-np.e + 1, 0.0, np.e**3 - 1], dtype=torch.float32)
    torch.testing.assert_close(symlog(vector), torch.tensor([-1.0, 0.0, 3.0]))
    mean, seen = torch.randn(2, 5, 3, S, generator=seeded())
    at = Independent(Normal(mean, 1.0), 1)
    torch.testing.assert_close(state_loss(mean, seen), at.log_prob(mean) - at.log_prob(seen))


def test_cameras_share_a_column_and_the_vector_has_its_own() -> None:
    seen = {name: torch.ones(2, 3, 4, 4, 3) for name in ("pixels_0", "pixels_1")}
    inputs = {**seen, "state": torch.ones(2, 3, S)}
    means = {**inputs, "pixels_1": torch.zeros(2, 3, 4, 4, 3), "state": torch.zeros(2, 3, S)}
    losses = reconstruction_losses(means, inputs)
    assert {name: loss.item() for name, loss in losses.items()} == {
        "image_loss": 0.5 * 48,
        "state_loss": 0.5 * S,
    }
    assert list(reconstruction_losses({"state": inputs["state"]}, {"state": inputs["state"]})) == [
        "state_loss"
    ]


def learn(model: Any, chunk: Chunk, updates: int) -> list[dict[str, float]]:
    optimizer, generator = torch.optim.Adam(model.parameters(), lr=3e-3), seeded(1)
    history = []
    for _ in range(updates):
        out = model(chunk, generator)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        history.append({name: value.item() for name, value in out.metrics.items()})
    return history


WIDE = {"deterministic": 32, "stochastic": 16, "hidden": 32, "depth": 8}


@pytest.mark.parametrize("sensors", [ALL, Sensors(pixels=False, state=True)], ids=["all", "state"])
def test_the_model_learns_to_rebuild_every_sensor(sensors: Sensors) -> None:
    chunk = recording(sensors)
    model = make_model(sensors, small(**WIDE))
    history = learn(model, chunk, 150)
    inputs = to_inputs(chunk.obs)
    means = {name: part.flatten(0, -2).mean(0).expand_as(part) for name, part in inputs.items()}
    constant = reconstruction_losses(means, inputs)
    for name, loss in constant.items():  # better than one color, and one vector, for all frames
        assert history[-1][name] < 0.6 * loss.item(), name
        assert history[-1][name] < 0.5 * history[0][name], name


def test_dropped_sensors_are_hidden_from_the_state_and_still_rebuilt() -> None:
    chunk = recording(BOTH, 3, 4)
    plain, dropping = make_model(BOTH), make_model(BOTH, dropout=0.9)
    dropping.load_state_dict(plain.state_dict())
    first, second = plain(chunk, seeded(3)), dropping(chunk, seeded(3))
    # The ensemble is taught what was there; the states saw less.
    torch.testing.assert_close(first.embedding, second.embedding, rtol=0, atol=0)
    assert not torch.equal(first.observed.state.features, second.observed.state.features)
    assert list(first.metrics) == list(second.metrics)
    second.loss.backward()
    assert (dropping.encoder.absent.grad != 0).any()
    for decoder in dropping.decoder.decoders.values():
        assert all((p.grad != 0).any() for p in decoder.parameters())


def test_what_is_missing_is_replaced_by_its_own_part_alone() -> None:
    encoder = make_model(BOTH).encoder
    assert isinstance(encoder, JointEncoder)
    with torch.no_grad():
        encoder.absent.fill_(7.0)
    embedding: Tensor = torch.zeros(2, encoder.size)
    missing = torch.tensor([[False, True], [True, False]])
    hidden = small().hidden
    seen = encoder.without(embedding, missing)
    assert (seen[0, :-hidden] == 0).all() and (seen[0, -hidden:] == 7).all()
    assert (seen[1, :-hidden] == 7).all() and (seen[1, -hidden:] == 0).all()


# --- the agent ------------------------------------------------------------------------------


def make_config(**env: Any) -> RunConfig:
    config = preset_config("debug", method="plan2explore")
    return replace(config, env=replace(config.env, **env))


@pytest.mark.parametrize("sensors", [("pixels",), ("pixels", "state")])
def test_without_any_reading_the_model_goes_on_by_itself(sensors: Any) -> None:
    """The policy's state is then the prior's, whatever stands in place of the readings."""
    config = make_config(sensors=sensors)
    agent = Plan2Explore(config, A, seeded(), torch.device("cpu"), S if len(sensors) > 1 else 0)
    rng = np.random.default_rng(0)
    obs: Any = rng.integers(0, 256, (3, SIZE, SIZE, 3), dtype=np.uint8)
    if len(sensors) > 1:
        obs = {"pixels": obs, "state": rng.normal(size=(3, S)).astype(np.float32)}
    policy = agent.policy()
    first = policy.act(obs, None)
    blind = np.zeros((3, len(sensors)), bool)
    blind[1] = True  # the second of three episodes
    second = policy.act(obs, None, missing=blind)
    with torch.no_grad():
        rssm, actor = agent.model.rssm, agent.behaviors["task"].actor
        readings = {k: torch.from_numpy(v) for k, v in obs.items()} if isinstance(obs, dict) else 0
        embedding = agent.model.embed(readings or torch.from_numpy(obs))
        still = torch.zeros(3, agent.own.stochastic)
        state = rssm.observe_step(rssm.initial(3), torch.zeros(3, A), embedding, still)
        action = torch.from_numpy(first)
        seen = rssm.observe_step(state, action, embedding, still).features
        alone = rssm.imagine_step(state, action, still).features
        expected = actor(torch.stack((seen[0], alone[1], seen[2])))[0].tanh().numpy()
    np.testing.assert_allclose(second, expected, rtol=1e-5, atol=1e-6)


def test_dropout_needs_two_sensors_and_state_alone_needs_no_image_size() -> None:
    with pytest.raises(UserError, match="--sensor-dropout needs two sensors"):
        check(make_config(sensor_dropout=0.3))
    with pytest.raises(UserError, match="too small for plan2explore"):
        make_model(BOTH).__class__(small(), 16, A, sensors=BOTH, state_size=S)
    tiny = make_config(sensors=("state",), size=16)
    Plan2Explore(tiny, A, seeded(), torch.device("cpu"), S)
    assert find_agent("plan2explore").update_bytes(tiny) > 0


@pytest.mark.parametrize("preset", ["cpu", "paper"])
@pytest.mark.parametrize("env", [{"cameras": (0, 1)}, {"sensors": ("state",)}], ids=str)
def test_the_size_of_a_checkpoint_is_about_right(preset: str, env: dict[str, Any]) -> None:
    config = preset_config(preset, method="plan2explore")
    config = replace(config, env=replace(config.env, **env))
    size = S if config.env.seen.state else 0
    agent = Plan2Explore(config, A, seeded(), torch.device("cpu"), size)
    weights = sum(p.nbytes for one in agent.networks().values() for p in one.parameters())
    assert 0.8 < find_agent("plan2explore").checkpoint_bytes(config) / (3 * weights) < 1.5
