"""A method that predicts a frame is shown the newest frame of the next state, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from method_inputs import seeded
from torch import Tensor

from sibe.agents.sac.agent import SAC
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.ladder.alone import MethodAlone
from sibe.methods.base import Latents, MethodOutput
from sibe.nn.encoder import Encoder
from sibe.nn.late_encoder import LateFusionEncoder
from sibe.nn.sensor_encoder import SensorEncoder
from sibe.replay.chunk import Chunk

SIZE, STACK, BATCH, STATES = 32, 3, 4, 3


def pictures(count: int, channels: int, seed: int = 0) -> Tensor:
    shape = (count, BATCH, SIZE, SIZE, channels)
    return torch.randint(0, 256, shape, generator=seeded(seed), dtype=torch.uint8)


def camera(fusion: str) -> Encoder | LateFusionEncoder:
    if fusion == "late":
        return LateFusionEncoder(SIZE, 3, stack=STACK, features=6, filters=8, generator=seeded())
    return Encoder(SIZE, 3 * STACK, features=6, filters=8, generator=seeded())


def states_of(fusion: str, seed: int = 0) -> Tensor:
    """Return three states in the form that the encoder takes."""
    if fusion == "late":
        return pictures(STATES + STACK - 1, 3, seed)
    return pictures(STATES, 3 * STACK, seed)


def newest_frames(fusion: str, obs: Tensor) -> Tensor:
    """Return the newest frame of each state, ``[T, B, H, W, 3]``."""
    return obs[STACK - 1 :] if fusion == "late" else obs[..., -3:]


def unmoved(fusion: str, obs: Tensor) -> Tensor:
    """Return stacked states ``[T, B, H, W, 9]`` all of whose frames are the newest one."""
    return torch.cat((newest_frames(fusion, obs),) * STACK, dim=-1)


@pytest.mark.parametrize("fusion", ["early", "late"])
def test_a_still_state_is_one_whose_frames_are_all_the_newest(fusion: str) -> None:
    encoder, obs = camera(fusion), states_of(fusion)
    both = encoder(obs, 2)
    torch.testing.assert_close(both[:STATES], encoder(obs))
    expected = encoder.single(unmoved(fusion, obs)[:2].flatten(0, 1)).unflatten(0, (2, BATCH))
    torch.testing.assert_close(both[STATES:], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("fusion", ["early", "late"])
def test_with_several_sensors_only_pictures_stand_still(fusion: str) -> None:
    encoder = SensorEncoder({"pixels": camera(fusion)}, {"state": 5}, features=6)
    obs = {"pixels": states_of(fusion), "state": torch.randn(STATES, BATCH, 5, generator=seeded())}
    both = encoder(obs, apart=True, still=2)
    torch.testing.assert_close(both[:, :STATES], encoder(obs, apart=True))
    shown = {"pixels": unmoved(fusion, obs["pixels"]), "state": obs["state"]}
    flat = {name: part[:2].flatten(0, 1) for name, part in shown.items()}
    expected = encoder.single(flat).unflatten(0, (2, BATCH))
    torch.testing.assert_close(both[0, STATES:], expected, atol=1e-5, rtol=1e-5)


def config_of(fusion: Any, n_step: int, predicts: str = "frame") -> RunConfig:
    config = preset_config("debug", method="sibe")
    return replace(
        config,
        encoder=replace(config.encoder, fusion=fusion, strides=(2, 1)),
        sac=replace(config.sac, n_step=n_step, transitions="all", batch=BATCH),
        method_config=replace(config.method_config, predicts=predicts),
    )


def agent_of(config: RunConfig) -> SAC:
    return build_sac(config, 2, seeded(), torch.device("cpu"))


def chunk_of(config: RunConfig, obs: Tensor) -> Chunk:
    length, g = sampling(config).length, seeded(1)
    action = torch.rand(length, BATCH, 2, generator=g) * 2 - 1
    reward = torch.rand(length, BATCH, generator=g)
    frames = sampling(config).frames_per_state
    return Chunk(obs, action, reward, torch.ones(length, BATCH), frames_per_state=frames)


def images_of(config: RunConfig) -> Tensor:
    length = sampling(config).length
    if config.encoder.fusion == "late":
        return pictures(length + STACK, 3)
    return pictures(length + 1, 3 * STACK)


def shown_to_method(
    agent: SAC, update: Callable[[Chunk], Any], chunk: Chunk, patch: pytest.MonkeyPatch
) -> Latents:
    """Update and return what the agent's method was given."""
    seen: list[Latents] = []
    forward = agent.method.forward

    def spy(x: Latents, generator: torch.Generator | None = None) -> MethodOutput:
        seen.append(x)
        return forward(x, generator)

    patch.setattr(agent.method, "forward", spy)
    update(chunk)
    return seen[0]


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("fusion", ["early", "late"])
def test_the_method_is_shown_the_newest_frame_of_the_next_state(
    fusion: str, n_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(fusion, n_step)
    agent, obs, length = agent_of(config), images_of(config), config.sac.chunk
    next_states = unmoved(fusion, obs)[1 : 1 + length].flatten(0, 1)
    encoder: Any = agent.target_encoder
    with torch.no_grad():
        expected = encoder.single(next_states).unflatten(0, (length, BATCH))
    given = shown_to_method(agent, agent.update, chunk_of(config, obs), monkeypatch).c_next
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("fusion", ["early", "late"])
def test_what_the_critic_learns_from_stays_the_whole_state(fusion: str) -> None:
    """Without a bonus, both kinds of prediction lead to the same TD error."""
    found = []
    for predicts in ("state", "frame"):
        config = config_of(fusion, 3, predicts)
        config = replace(config, method_config=replace(config.method_config, intrinsic=0.0))
        metrics = agent_of(config).update(chunk_of(config, images_of(config)))
        found.append(metrics)
    torch.testing.assert_close(found[0]["critic_loss"], found[1]["critic_loss"])
    assert not torch.allclose(found[0]["infonce"], found[1]["infonce"])


@pytest.mark.parametrize("fusion", ["early", "late"])
def test_the_ladder_shows_a_method_alone_the_same(
    fusion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(fusion, 1)
    chunk = chunk_of(config, images_of(config))
    agent, other = agent_of(config), agent_of(config)
    expected = shown_to_method(agent, agent.update, chunk, monkeypatch).c_next
    given = shown_to_method(other, MethodAlone(other).update, chunk, monkeypatch).c_next
    torch.testing.assert_close(given, expected)
