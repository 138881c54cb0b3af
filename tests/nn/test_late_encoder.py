"""Late fusion against the textbook formulation, and an agent that uses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sibe.agents.sac import losses
from sibe.agents.sac.encoders import build_encoder
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.methods.sibe import SIBE
from sibe.nn.encoder import Encoder
from sibe.nn.late_encoder import LateFusionEncoder
from sibe.replay import Replay

SIZE, STACK = 29, 3


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make_encoder(stack: int = STACK, **options: Any) -> LateFusionEncoder:
    encoder = LateFusionEncoder(
        SIZE, 3, stack=stack, features=6, filters=8, generator=seeded(), **options
    )
    with torch.no_grad():  # away from special first values
        for parameter in encoder.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=seeded(1)) * 0.1)
    return encoder


def frames(count: int, batch: int) -> Tensor:
    shape = (count, batch, SIZE, SIZE, 3)
    return torch.randint(0, 256, shape, generator=seeded(2), dtype=torch.uint8)


def plain(encoder: LateFusionEncoder, frame: Tensor) -> Tensor:
    """Encode frames ``[N, H, W, C]`` with nothing but torch.nn.functional, NCHW."""
    maps = frame.permute(0, 3, 1, 2).double() / 255 - (0.5 if encoder.center else 0.0)
    if encoder.chroma:
        r, g, b = maps.unbind(1)
        maps = torch.stack((2 * (r - b), 2 * g - r - b), 1)
    for conv in (encoder.first, *encoder.rest):
        maps = F.relu(F.conv2d(maps, conv.weight, conv.bias, conv.stride))
    shape = F.relu(F.conv2d(maps, encoder.pooled.weight, encoder.pooled.bias)).flatten(2).max(-1)[0]
    place = encoder.place(maps.permute(0, 2, 3, 1).reshape(len(maps), -1))
    return torch.cat((encoder.shape_norm(shape), encoder.place_norm(place)), -1)


@pytest.mark.parametrize(
    ("stack", "center", "chroma"),
    [(1, False, False), (2, True, False), (3, True, False), (2, False, True), (3, True, True)],
)
def test_late_fusion_equals_the_textbook_formulation(
    stack: int, center: bool, chroma: bool
) -> None:
    encoder = make_encoder(stack, center=center, chroma=chroma, smooth=True).double()
    given = frames(stack + 3, 2)
    each = [plain(encoder, frame) for frame in given]
    expected = []
    for newest in range(stack - 1, len(given)):
        parts = [each[newest]]
        parts += [each[newest - lag] - each[newest - lag - 1] for lag in range(stack - 1)]
        expected.append(encoder.combine(torch.cat(parts, -1)))
    torch.testing.assert_close(encoder(given), torch.stack(expected), atol=1e-9, rtol=1e-9)


def test_a_stacked_state_is_encoded_as_in_its_chunk() -> None:
    encoder, given = make_encoder(), frames(5, 4)
    c = encoder(given)
    assert c.shape == (3, 4, 6)
    for t in range(3):
        state = torch.cat(tuple(given[t : t + STACK]), dim=-1)
        torch.testing.assert_close(encoder.single(state), c[t], atol=1e-5, rtol=1e-5)


def test_the_pooled_features_do_not_depend_on_the_place() -> None:
    encoder = make_encoder(1, strides=(1, 1))
    image = torch.full((2, 1, SIZE, SIZE, 3), 90, dtype=torch.uint8)
    image[0, 0, 8:11, 7:9] = torch.tensor([200, 40, 120], dtype=torch.uint8)
    image[1, 0, 10:13, 12:14] = image[0, 0, 8:11, 7:9]
    features = encoder._frame_features(*encoder._convolve(image.flatten(0, 1)))
    pooled, place = features.split((32, 6), dim=-1)
    torch.testing.assert_close(pooled[0], pooled[1], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(place[0], place[1], atol=1e-2)


def test_the_config_says_which_encoder_is_built() -> None:
    config = late_config()
    assert isinstance(build_encoder(config, seeded()), LateFusionEncoder)
    early = replace(config, encoder=replace(config.encoder, fusion="early"))
    assert isinstance(build_encoder(early, seeded()), Encoder)


def late_config(method: str = "sibe", **sac: Any) -> RunConfig:
    config = preset_config("debug", method=method)
    encoder = replace(config.encoder, fusion="late", strides=(2, 1))
    sac = {"n_step": 3, "shift": 0, "transitions": "all", **sac}
    return replace(config, encoder=encoder, sac=replace(config.sac, **sac))


def filled_replay(config: RunConfig, actions: int) -> Replay:
    rng, side = np.random.default_rng(0), config.env.size
    replay = Replay(60, (side, side, 3), actions, stack=config.env.stack, pad=config.sac.shift)
    for _ in range(2):
        replay.start(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
        for step in range(20):
            frame = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
            action = rng.uniform(-1, 1, actions)
            replay.add(action, float(rng.random()), 1.0, frame, last=step == 19)
    return replay


@pytest.mark.parametrize("transitions", ["first", "all"])
@pytest.mark.parametrize("method", ["none", "sibe"])
def test_an_agent_learns_the_same_from_frames_as_from_stacked_states(
    method: str, transitions: str
) -> None:
    """The TD target of a chunk of frames is that of its states, encoded one by one."""
    config = late_config(method, transitions=transitions)
    agent = build_sac(config, 2, seeded(), torch.device("cpu"))
    replay, wanted = filled_replay(config, 2), sampling(config)
    assert wanted.frames_per_state == 3
    chunk = replay.minibatch(wanted, np.random.default_rng(5))
    stacked = replay.sample(wanted.batch, wanted.length, np.random.default_rng(5))
    seen: list[Tensor] = []
    original = losses.critic_loss

    def spy(q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
        seen.extend((q1.detach().clone(), target.clone()))
        return original(q1, q2, target)

    with torch.no_grad():
        # One action for every state, without chance.
        agent.actor.trunk[-1].get_parameter("weight").zero_()
        agent.actor.trunk[-1].get_parameter("bias").copy_(torch.tensor([0.3, -0.2, -40.0, -40.0]))
        agent.log_temperature.fill_(-50.0)
        rows = config.sac.chunk if transitions == "all" else 1
        states, later = stacked.obs[:rows].flatten(0, 1), stacked.obs[3 : 3 + rows].flatten(0, 1)
        action = torch.tensor([0.3, -0.2]).tanh().expand(len(later), 2)
        value = torch.minimum(*agent.target_critic(agent.target_encoder.single(later), action))
        rewards = (0.99**i * stacked.reward[i : i + rows] for i in range(3))
        reward = sum(rewards, torch.zeros(())).flatten()
        q = agent.critic(agent.encoder.single(states), stacked.action[:rows].flatten(0, 1))[0]
    if method == "sibe":
        assert isinstance(agent.method, SIBE)
        agent.method.config = replace(agent.method.config, intrinsic=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "critic_loss", spy)
        agent.update(chunk)
    torch.testing.assert_close(seen[0], q, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(seen[1], reward + 0.99**3 * value, atol=1e-4, rtol=1e-4)


def test_reward_scale_scales_the_targets_and_nothing_else() -> None:
    seen: list[Tensor] = []
    original = losses.critic_loss

    def spy(q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
        seen.append(target)
        return original(q1, q2, target)

    for scale in (1.0, 0.1):
        config = late_config("none", reward_scale=scale)
        agent = build_sac(config, 2, seeded(), torch.device("cpu"))
        with torch.no_grad():
            agent.target_critic.q1[-1].get_parameter("weight").zero_()
            agent.target_critic.q2[-1].get_parameter("weight").zero_()
            agent.log_temperature.fill_(-50.0)
        chunk = filled_replay(config, 2).minibatch(sampling(config), np.random.default_rng(5))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(losses, "critic_loss", spy)
            metrics = agent.update(chunk)
        torch.testing.assert_close(metrics["batch_reward"], chunk.reward[:2].mean())
    torch.testing.assert_close(seen[1], 0.1 * seen[0])
