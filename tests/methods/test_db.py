"""DB's bounds, gradients and bonus, against the equations computed another way."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from method_inputs import move_weights, random_latents, seeded
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from sibe.catalogue.presets import PRESETS, preset_config
from sibe.errors import UserError
from sibe.methods.base import Latents
from sibe.methods.db import (
    DB,
    PREDICTION_FLOOR,
    DBConfig,
    information_gain,
    log_likelihood,
    softplus_gaussian,
)
from sibe.nn.gaussian import Gaussian
from sibe.nn.residual import ResidualNetwork
from sibe.nn.running import RunningMoments

D, A, LATENT = 6, 2, 4
SMALL = DBConfig(latent=LATENT, hidden=16)


def small(**changes: Any) -> DBConfig:
    return replace(SMALL, **changes)


def inputs(length: int = 2, batch: int = 5, seed: int = 1) -> Latents:
    return random_latents(D, A, length, batch, seed)


def method(config: DBConfig = SMALL) -> DB:
    """A method whose momentum copy has moved away from its projection."""
    model = DB(D, A, config, generator=seeded(3))
    move_weights(model)
    return model


# --- the formulas ---------------------------------------------------------------------------


def test_softplus_std_has_a_floor_and_keeps_its_gradient_there() -> None:
    raw = torch.tensor([-15.0, -1.0, 0.0, 3.0, 200.0], requires_grad=True)
    std = softplus_gaussian(raw, raw, 0.1).std
    expected = [0.1 + math.log1p(math.exp(v)) for v in (-15.0, -1.0, 0.0, 3.0)] + [200.1]
    torch.testing.assert_close(std, torch.tensor(expected))
    (gradient,) = torch.autograd.grad(std.log().sum(), raw)
    assert (std > 0.1 - 1e-6).all() and (gradient > 0).all()


def test_information_gain_is_the_divergence_from_the_prior() -> None:
    mean, raw = 2 * torch.randn(2, 3, 7, LATENT, generator=seeded())
    posterior = softplus_gaussian(mean, raw, 1e-3)
    prior = Normal(torch.zeros(LATENT), torch.ones(LATENT))
    expected = kl_divergence(Normal(mean, posterior.std), prior).sum(-1)
    torch.testing.assert_close(information_gain(posterior), expected, rtol=1e-4, atol=1e-5)
    zeros = torch.zeros(LATENT)
    assert information_gain(Gaussian(zeros, zeros)).item() == 0


def test_log_likelihood_is_that_of_a_normal() -> None:
    x, mean, log_std = torch.randn(3, 2, 5, D, generator=seeded())
    expected = Normal(mean, log_std.exp()).log_prob(x).sum(-1)
    torch.testing.assert_close(log_likelihood(x, Gaussian(mean, log_std)), expected)


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("train_encoder", ["nothing", "contrast", "everything"])
def test_loss_equals_the_equations(length: int, train_encoder: Any) -> None:
    weights = {"kl_weight": 0.3, "prediction_weight": 0.7, "contrastive_weight": 1.1}
    model, x = method(small(**weights, train_encoder=train_encoder)), inputs(length)
    out = model(x, seeded(9))

    generator = seeded(9)
    g = model.encode(x.c, x.action)
    z = g.mean + g.std * torch.randn(length, 5, LATENT, generator=generator)
    q = model.predict(z)
    seen = q
    if train_encoder == "contrast":  # a Z of its own, through which alone c gets gradient
        seen = model.predict(g.mean + g.std * torch.randn(length, 5, LATENT, generator=generator))
    sample = seen.mean + seen.std * torch.randn(length, 5, D, generator=generator)
    gain = kl_divergence(Normal(g.mean, g.std), Normal(torch.zeros(1), torch.ones(1))).sum(-1)
    likelihood = Normal(q.mean, q.std).log_prob(x.c_next).sum(-1)

    pairs = [(t, b) for t in range(length) for b in range(5)]
    query, key = model.projection(sample), model.target_projection(x.c_next)
    queries, keys = (
        np.stack([v[t, b].detach().double().numpy() for t, b in pairs]) for v in (query, key)
    )
    omega = model.bilinear.weight.detach().double().numpy()
    contrast = []
    for i in range(len(pairs)):
        total = sum(math.exp(queries[i] @ omega @ keys[j]) for j in range(len(pairs)))
        contrast.append(-math.log(math.exp(queries[i] @ omega @ keys[i]) / total))

    expected = {
        "kl": gain.mean().item(),
        "log_likelihood": likelihood.mean().item(),
        "infonce": float(np.mean(contrast)),
        "infonce_accuracy": np.mean((queries @ omega @ keys.T).argmax(1) == np.arange(len(pairs))),
        "std_g": g.std.mean().item(),
        "std_q": q.std.mean().item(),
        "bonus": out.bonus.mean().item(),
    }
    assert {k: v.item() for k, v in out.metrics.items()} == pytest.approx(expected, rel=1e-4)
    loss = 0.3 * expected["kl"] - 0.7 * expected["log_likelihood"] + 1.1 * expected["infonce"]
    assert out.loss.item() == pytest.approx(loss, rel=1e-4)
    terms = model.terms(x, seeded(9))
    np.testing.assert_allclose(
        terms.infonce.detach().flatten().numpy(), contrast, rtol=1e-4, atol=1e-5
    )


def test_one_learned_std_for_all_dimensions() -> None:
    model = method()
    fresh = DB(D, A, small(first_std=0.5), generator=seeded(3)).predict(torch.zeros(LATENT))
    torch.testing.assert_close(fresh.std, torch.full((D,), 0.5))
    prediction = model.predict(torch.randn(3, LATENT, generator=seeded()))
    assert prediction.std.shape == (3, D) and prediction.std.unique().numel() == 1
    with torch.no_grad():
        model.raw_std.fill_(-50)
    floor = torch.tensor(PREDICTION_FLOOR)
    torch.testing.assert_close(model.predict(torch.zeros(LATENT)).std, floor.expand(D))


def test_residual_network_is_what_it_says_and_sees_the_condition_everywhere() -> None:
    network = ResidualNetwork(3, 8, 5, condition=2, generator=seeded())
    x, a = torch.randn(4, 3, generator=seeded(1)), torch.randn(4, 2, generator=seeded(2))

    def layer(module: Any, h: np.ndarray) -> np.ndarray:
        weight, bias = (v.detach().numpy() for v in (module.linear.weight, module.linear.bias))
        joint: np.ndarray = np.concatenate((h, a.numpy()), -1) @ weight.T + bias
        return joint

    def leaky(h: np.ndarray) -> np.ndarray:
        return np.where(h > 0, h, 0.01 * h)

    h = leaky(layer(network.first, x.numpy()))
    for block in network.blocks:
        h = h + layer(block.second, leaky(layer(block.first, h)))
    expected = layer(network.last, h)
    np.testing.assert_allclose(network(x, a).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


# --- who learns from what -------------------------------------------------------------------

HEADS = {"posterior", "prediction", "refinement", "raw_std", "projection", "bilinear"}
ROUTES = {
    # term: heads that receive gradient; all other parameters must receive none
    "kl": {"posterior"},
    "log_likelihood": {"posterior", "prediction", "refinement", "raw_std"},
    "infonce": HEADS,
    "loss": HEADS,
}


@pytest.mark.parametrize("term", ROUTES)
@pytest.mark.parametrize("train_encoder", ["nothing", "contrast", "everything"])
def test_gradient_reaches_exactly_what_the_term_is_about(term: str, train_encoder: Any) -> None:
    model = method(small(train_encoder=train_encoder))
    x = Latents(*(v.detach().requires_grad_() for v in inputs(batch=32)))
    value = model(x, seeded()).loss if term == "loss" else getattr(model.terms(x, seeded()), term)
    torch.autograd.backward(value.mean())
    for name, parameter in model.named_parameters():
        if name.split(".")[0] in ROUTES[term]:
            assert parameter.grad is not None and parameter.grad.any(), name
        else:
            assert parameter.grad is None or not parameter.grad.any(), name
    trained = {
        "nothing": False,
        "contrast": term in ("infonce", "loss"),
        "everything": True,
    }[train_encoder]
    for name, moved in (("c", trained), ("action", True), ("c_next", False)):
        grad = getattr(x, name).grad
        assert (grad is not None and bool(grad.any())) == moved, name


def test_the_prior_and_the_moments_are_no_parameters() -> None:
    model = method()
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {
        *HEADS,
        "target_projection",
    }
    (group,) = model.parameter_groups()
    frozen = {id(p) for p in model.target_projection.parameters()}
    assert group["lr"] == SMALL.lr and frozen.isdisjoint(id(p) for p in group["params"])
    assert len(group["params"]) + len(frozen) == len(list(model.parameters()))


def test_momentum_projection_starts_equal_and_follows_by_tau() -> None:
    model = DB(D, A, small(tau=0.25), generator=seeded())
    pairs = list(
        zip(model.target_projection.parameters(), model.projection.parameters(), strict=True)
    )
    assert all(torch.equal(target, online) for target, online in pairs)
    before = [target.clone() for target, _ in pairs]
    with torch.no_grad():
        for _, online in pairs:
            online.add_(1)
    model.update_targets()
    for (target, _), old in zip(pairs, before, strict=True):
        torch.testing.assert_close(target, old + 0.25)


# --- the bonus ------------------------------------------------------------------------------


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("scale", [0.0, 0.01, 2.0])
def test_bonus_is_the_scaled_gain_and_detached(root: bool, scale: float) -> None:
    model, x = method(small(root=root, intrinsic=scale, normalize=False)), inputs()
    out = model(x, seeded(9))
    gain = information_gain(model.encode(x.c, x.action)).detach()
    torch.testing.assert_close(out.bonus, scale * (gain.sqrt() if root else gain))
    assert not out.bonus.requires_grad and out.bonus.dtype == x.reward.dtype
    assert (out.bonus > 0).all() == (scale > 0)
    paid = method(small(root=root, intrinsic=5.0, normalize=False))(x, seeded(9))
    assert torch.equal(paid.loss, out.loss)  # the scale is no part of the loss


def test_bonus_is_normalized_by_all_that_was_seen_each_once() -> None:
    model, moments = method(small(intrinsic=0.5)), RunningMoments()
    for seed in range(4):
        x = inputs(2, 50, seed)
        gain = information_gain(model.encode(x.c, x.action)).detach()
        bonus = model(x, seeded()).bonus
        torch.testing.assert_close(bonus, 0.5 * moments.scale(gain.sqrt()))
    torch.testing.assert_close(model.moments.std, moments.std)
    assert 0 < bonus.mean() <= 0.55


def clusters(generator: torch.Generator, near: int, far: int, world: Tensor) -> Latents:
    """Transitions from two places at the same distance from 0; ``world [3, D, D]``."""
    centers, rotation, push = world
    which = torch.tensor([0] * near + [1] * far)
    c = D**0.5 * centers[which] + 0.3 * torch.randn(near + far, D, generator=generator)
    action = torch.rand(near + far, A, generator=generator) * 2 - 1
    c_next = c @ rotation + action @ push[:A]
    return Latents(c[None], c_next[None], action[None], torch.zeros(1, near + far))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_unvisited_pays_most_the_rare_more_the_frequent_least(seed: int) -> None:
    generator = seeded(seed)
    world = torch.linalg.qr(torch.randn(3, D, D, generator=generator))[0]
    held_out = clusters(generator, 200, 200, world)

    def paid(rare: int) -> tuple[float, float]:
        model = DB(D, A, small(latent=8, normalize=False), generator=seeded(seed))
        optimizer = torch.optim.Adam(model.parameter_groups()[0]["params"], lr=2e-3)
        draws = seeded(seed)
        for _ in range(100):
            out = model(clusters(draws, 64 - rare, rare, world), draws)
            optimizer.zero_grad()
            out.loss.backward()
            optimizer.step()
        bonus = model(held_out, draws).bonus[0]
        return bonus[:200].mean().item(), bonus[200:].mean().item()

    frequent, unvisited = paid(rare=0)
    frequent_too, rare = paid(rare=3)
    assert unvisited > 2 * frequent
    assert 1.3 * frequent_too < rare < unvisited


# --- robustness -----------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e4])
def test_everything_stays_finite(scale: float) -> None:
    model, x = DB(D, A, small(train_encoder="everything"), generator=seeded()), inputs()
    c = (x.c.detach() * scale).requires_grad_()
    out = model(x._replace(c=c, c_next=x.c_next * -scale), seeded())
    out.loss.backward()
    gradients = [v.grad for v in (c, *model.parameters()) if v.grad is not None]
    for value in (out.loss, out.bonus, *out.metrics.values(), *gradients):
        assert torch.isfinite(value).all()


def test_one_seed_gives_one_result_whatever_the_global_state() -> None:
    def trial(seed: int) -> Tensor:
        torch.randn(7)  # disturb the global generator
        model = DB(D, A, SMALL, generator=seeded(seed))
        out = model(inputs(), seeded(seed))
        out.loss.backward()
        gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        return torch.cat([out.loss.detach()[None], out.bonus.flatten(), *gradients])

    assert torch.equal(trial(1), trial(1))
    assert not torch.equal(trial(1), trial(2))


def test_state_round_trip_continues_exactly_moments_included() -> None:
    source, target = method(), DB(D, A, SMALL, generator=seeded(77))
    for seed in range(3):
        source(inputs(seed=seed), seeded())
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    x = inputs(seed=8)
    target.load_state_dict(torch.load(file, weights_only=True))
    ours, theirs = source(x, seeded(9)), target(x, seeded(9))
    assert torch.equal(ours.loss, theirs.loss) and torch.equal(ours.bonus, theirs.bonus)
    assert not torch.equal(ours.bonus, DB(D, A, SMALL, generator=seeded(77))(x, seeded(9)).bonus)
    assert not any(p.requires_grad for p in target.target_projection.parameters())


def test_embedding_is_the_mean_of_the_posterior_when_nothing_is_done() -> None:
    model, x = method(), inputs()
    z = model.embed(x.c)["z"]
    expected = model.encode(x.c, torch.zeros_like(x.action)).mean
    assert z.shape == (2, 5, LATENT) and not z.requires_grad
    torch.testing.assert_close(z, expected.detach())


def test_presets_set_the_widths() -> None:
    widths = {
        preset: (config.hidden, config.latent)
        for preset in PRESETS
        if (config := preset_config(preset, method="db").method_config)
    }
    assert widths == {"paper": (256, 128), "cpu": (256, 128), "debug": (32, 16)}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kl_weight", -1.0),
        ("prediction_weight", math.nan),
        ("contrastive_weight", math.inf),
        ("intrinsic", -0.1),
        ("latent", 0),
        ("hidden", 0),
        ("lr", 0.0),
        ("tau", 0.0),
        ("tau", 1.5),
    ],
)
def test_meaningless_settings_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"^--db\.{field.replace('_', '-')} must be"):
        small(**{field: value})
