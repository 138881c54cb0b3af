"""Plan2Explore's world model: shapes, the RSSM step by step, its losses, and real frames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from method_inputs import seeded
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

import sibe
from sibe.agents.plan2explore.config import Plan2ExploreConfig
from sibe.agents.plan2explore.images import ConvDecoder, ConvEncoder, map_sizes, to_float
from sibe.agents.plan2explore.networks import gaussian_from
from sibe.agents.plan2explore.rssm import RSSM, State
from sibe.agents.plan2explore.world_model import WorldModel, image_loss, kl_loss
from sibe.catalogue.presets import preset_config
from sibe.errors import UserError
from sibe.nn.gaussian import Gaussian
from sibe.replay.chunk import Chunk

ACTIONS = 2


def small(**changes: Any) -> Plan2ExploreConfig:
    config = preset_config("debug", method="plan2explore").method_config
    assert isinstance(config, Plan2ExploreConfig)
    return replace(config, **changes)


@pytest.mark.parametrize("size", [32, 33, 45, 46, 48, 64, 84, 100])
def test_the_decoder_gives_back_the_size_that_the_encoder_took(size: int) -> None:
    encoder = ConvEncoder(size, 2, generator=seeded())
    decoder = ConvDecoder(7, size, 2, generator=seeded())
    images = torch.rand(2, 3, size, size, 3, generator=seeded())
    embedding = encoder(images)
    assert embedding.shape == (2, 3, encoder.size)
    assert decoder(torch.zeros(2, 3, 7)).shape == images.shape
    # every pixel but those on the edge can be seen, and can be painted
    image = images[0, :1].clone().requires_grad_()
    encoder(image).sum().backward()
    assert (image.grad is not None) and image.grad[0, 4:-6, 4:-6].abs().sum(-1).gt(
        0
    ).float().mean() > 0.5


def test_sizes_of_the_paper_and_too_small_images() -> None:
    assert map_sizes(64) == [64, 31, 14, 6, 2]
    assert ConvEncoder(64, 32, generator=seeded()).size == 1024
    with pytest.raises(UserError, match="--size 32 or more"):
        map_sizes(31)


def test_pixels_are_centered() -> None:
    pixels = torch.tensor([0, 51, 255], dtype=torch.uint8)
    torch.testing.assert_close(to_float(pixels), torch.tensor([-0.5, -0.3, 0.5]))


def make_rssm() -> RSSM:
    return RSSM(11, ACTIONS, deterministic=6, stochastic=4, hidden=8, generator=seeded())


def sequence(length: int = 5, batch: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    g = seeded(1)
    return (
        torch.randn(length, batch, 11, generator=g),
        torch.rand(length, batch, ACTIONS, generator=g),
        torch.randn(length, batch, 4, generator=g),
    )


def test_observe_equals_step_by_step() -> None:
    rssm, (embedding, action, noise) = make_rssm(), sequence()
    seen = rssm.observe(embedding, action, noise)
    assert seen.state.features.shape == (5, 3, 10) and rssm.features == 10
    state = rssm.initial(3)
    for t in range(5):
        state = rssm.observe_step(state, action[t], embedding[t], noise[t])
        torch.testing.assert_close(seen.state.deter[t], state.deter)
        torch.testing.assert_close(seen.state.stoch[t], state.stoch)
        prior, posterior = rssm.prior(state.deter), rssm.posterior(state.deter, embedding[t])
        torch.testing.assert_close(seen.prior.mean[t], prior.mean)
        torch.testing.assert_close(seen.prior.std[t], prior.std)
        torch.testing.assert_close(seen.posterior.mean[t], posterior.mean)
        torch.testing.assert_close(seen.posterior.std[t], posterior.std)
        torch.testing.assert_close(state.stoch, posterior.mean + posterior.std * noise[t])


def test_the_state_knows_the_past_and_not_the_future() -> None:
    rssm, (embedding, action, noise) = make_rssm(), sequence()
    before = rssm.observe(embedding, action, noise).state.features
    embedding[2] += 1
    action[4] += 1
    after = rssm.observe(embedding, action, noise).state.features
    torch.testing.assert_close(before[:2], after[:2])
    assert all(not torch.allclose(before[t], after[t]) for t in (2, 3, 4))


def test_imagining_uses_the_prior() -> None:
    rssm = make_rssm()
    state = State(torch.randn(3, 6, generator=seeded(2)), torch.randn(3, 4, generator=seeded(3)))
    action, noise = torch.ones(3, ACTIONS), torch.randn(3, 4, generator=seeded(4))
    ahead = rssm.imagine_step(state, action, noise)
    prior = rssm.prior(rssm.advance(state, action))
    torch.testing.assert_close(ahead.stoch, prior.mean + prior.std * noise)


def test_gaussians_have_softplus_plus_a_tenth() -> None:
    raw = torch.tensor([[1.0, -2.0, 0.0, -50.0]])
    std = gaussian_from(raw).std
    torch.testing.assert_close(std, torch.tensor([[np.log(2) + 0.1, 0.1]], dtype=torch.float32))


def pair(requires_grad: bool = True) -> tuple[Tensor, ...]:
    """Mean and log-std of a posterior and of a prior, ``[T, B, S]``."""
    made = [torch.randn(4, 3, 5, generator=seeded(i)) for i in range(4)]
    return tuple(
        x.mul(s).requires_grad_(requires_grad) for x, s in zip(made, (1, 0.3, 1, 0.3), strict=True)
    )


def reference_kl(q_mean: Tensor, q_log: Tensor, p_mean: Tensor, p_log: Tensor) -> Tensor:
    q = Independent(Normal(q_mean, q_log.exp()), 1)
    p = Independent(Normal(p_mean, p_log.exp()), 1)
    return kl_divergence(q, p).mean()


@pytest.mark.parametrize("balance", [0.0, 0.5, 0.8, 1.0])
def test_kl_and_its_balance_against_torch_distributions(balance: float) -> None:
    ours, reference = pair(), pair()
    loss, value = kl_loss(Gaussian(*ours[:2]), Gaussian(*ours[2:]), free_nats=0.0, balance=balance)
    expected = reference_kl(*reference)
    expected.backward()
    loss.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(value, expected)
    assert not value.requires_grad
    for i, (a, b) in enumerate(zip(ours, reference, strict=True)):
        assert a.grad is not None and b.grad is not None
        share = 2 * (1 - balance) if i < 2 else 2 * balance
        torch.testing.assert_close(a.grad, share * b.grad, rtol=1e-4, atol=1e-6)


def test_free_nats_stop_the_pull_but_not_the_report() -> None:
    ours = pair()
    expected = reference_kl(*pair(False))
    free = expected.item() + 1
    loss, value = kl_loss(Gaussian(*ours[:2]), Gaussian(*ours[2:]), free_nats=free, balance=0.5)
    loss.backward()
    assert loss.item() == pytest.approx(free) and value.item() == pytest.approx(expected.item())
    assert all(x.grad is None or not x.grad.any() for x in ours)


def test_image_loss_is_a_unit_gaussian() -> None:
    mean, image = torch.rand(2, 3, 4, 4, 3), torch.rand(2, 3, 4, 4, 3)
    at = Independent(Normal(mean, 1.0), 3)
    torch.testing.assert_close(
        image_loss(mean, image), at.log_prob(mean) - at.log_prob(image), rtol=1e-4, atol=1e-4
    )


def real_frames(length: int = 6, batch: int = 4) -> Chunk:
    """A few steps of the cart-pole, rendered, as B sequences of T frames."""
    env = sibe.make_env("cartpole_swingup", size=32, stack=1, action_repeat=8)
    rng = np.random.default_rng(0)
    obs, action, reward = [], [], []
    for b in range(batch):
        frames = [env.reset(seed=b)[0]]
        for _ in range(length - 1):
            a = rng.uniform(-1, 1, 1).astype(np.float32)
            frame, r, *_ = env.step(a)
            frames.append(frame)
            action.append(a)
            reward.append(r)
        obs.append(np.stack(frames))
    env.close()
    shape = (batch, length - 1)
    return Chunk(
        torch.from_numpy(np.stack(obs)).transpose(0, 1).contiguous(),
        torch.from_numpy(np.stack(action)).reshape(*shape, 1).transpose(0, 1),
        torch.tensor(reward, dtype=torch.float32).reshape(shape).T,
        torch.ones(shape).T,
    )


def test_the_model_learns_to_paint_real_frames_and_to_foresee_reward() -> None:
    chunk = real_frames()
    images = to_float(chunk.obs)
    one_color = image_loss(images.mean((0, 1, 2, 3)), images).mean().item()
    model = WorldModel(
        small(deterministic=32, stochastic=16, hidden=32, depth=8), 32, 1, generator=seeded()
    )
    optimizer, generator = torch.optim.Adam(model.parameters(), lr=3e-3), seeded(1)
    history = []
    for _ in range(120):
        out = model(chunk, generator)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        history.append({name: value.item() for name, value in out.metrics.items()})
    assert history[-1]["image_loss"] < 0.1 * history[0]["image_loss"]
    assert history[-1]["image_loss"] < 0.5 * one_color
    assert history[-1]["reward_loss"] < 0.5 * history[0]["reward_loss"]
    assert history[-1]["continue_loss"] < 0.1


@pytest.mark.parametrize("mode", ["combination", "zero_shot"])
def test_the_task_shapes_the_state_only_in_the_combination(mode: str) -> None:
    chunk = real_frames(3, 2)
    model = WorldModel(small(mode=mode), 32, 1, generator=seeded())

    def gradients(reward: Tensor) -> list[Tensor]:
        model.zero_grad()
        model(chunk._replace(reward=reward), seeded(5)).loss.backward()
        found = []
        for parameter in (*model.encoder.parameters(), *model.rssm.parameters()):
            assert parameter.grad is not None
            found.append(parameter.grad.clone())
        return found

    one, other = gradients(chunk.reward), gradients(chunk.reward + 10)
    same = all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert same == (mode == "zero_shot")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("mode", "both"), ("intrinsic", -1.0), ("disagreement_scale", float("nan"))),
        *(("members", 1), ("ensemble_hidden", 0), ("batch", 0), ("sequence", 1)),
        *(("update_every", 0), ("horizon", 0), ("deterministic", 0), ("stochastic", 0)),
        *(("hidden", 0), ("depth", 0), ("free_nats", -1.0), ("kl_scale", float("inf"))),
        *(("kl_balance", 1.1), ("discount", -0.1), ("return_lambda", 2.0), ("model_lr", 0.0)),
        *(("actor_lr", -1.0), ("value_lr", float("nan")), ("clip", 0.0), ("action_noise", -0.3)),
    ],
)
def test_meaningless_settings_are_refused_by_name(field: str, value: object) -> None:
    flag = field.replace("_", "-")
    with pytest.raises(UserError, match=rf"^--plan2explore\.{flag} must be"):
        small(**{field: value})
