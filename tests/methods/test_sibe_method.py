"""SIBE's loss, gradients and bonus, against the equations computed another way."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from method_inputs import build_method, move_weights, random_latents, seeded
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from sibe.catalogue.registry import METHODS
from sibe.errors import UserError
from sibe.methods.base import Latents, Method
from sibe.methods.sibe import SIBE, BottleneckOutput, SequentialBottleneck, SIBEConfig

D, A, LATENT = 6, 2, 4
SMALL = SIBEConfig(latent=LATENT, hidden=16)


def small(**changes: Any) -> SIBEConfig:
    return replace(SMALL, **changes)


def inputs(length: int = 2, batch: int = 5, seed: int = 1) -> Latents:
    return random_latents(D, A, length, batch, seed)


def bottleneck(config: SIBEConfig = SMALL, *, apart: bool = True) -> SequentialBottleneck:
    """A model whose targets have moved away from their online networks, unless told not to."""
    model = SequentialBottleneck(D, A, config, generator=seeded(3))
    if apart:
        move_weights(model)
    return model


def run(model: SequentialBottleneck, x: Latents, seed: int = 9) -> BottleneckOutput:
    out: BottleneckOutput = model(x.c, x.action, x.c_next, seeded(seed))
    return out


def brute_infonce(query: Tensor, key: Tensor, omega: Tensor) -> np.ndarray:
    """Per-sample loss of queries and keys [N, D], summed in float64 loops."""
    q, k, w = (t.detach().double().numpy() for t in (query, key, omega))
    losses = []
    for i in range(len(q)):
        total = sum(math.exp(q[i] @ w @ k[j]) for j in range(len(k)))
        losses.append(-math.log(math.exp(q[i] @ w @ k[i]) / total))
    return np.array(losses)


# --- the loss -------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("negatives", ["pooled", "step"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_loss_equals_the_equations(length: int, negatives: str, reduction: str) -> None:
    model = bottleneck(small(negatives=negatives, kl_reduction=reduction, alpha=0.3))
    x = inputs(length)
    out = run(model, x)

    generator = seeded(9)
    g_o, g_m = model.stochastic_encoder(x.c), model.target_stochastic_encoder(x.c_next)
    noise = [torch.randn(length, 5, LATENT, generator=generator) for _ in range(2)]
    z, z_next = g_o.mean + g_o.std * noise[0], g_m.mean + g_m.std * noise[1]
    torch.testing.assert_close(out.z, z)
    torch.testing.assert_close(out.z_next, z_next)

    q = model.transition(torch.cat((z, x.action), -1))
    per_dimension = kl_divergence(Normal(g_m.mean, g_m.std), Normal(q.mean, q.std))
    expected_kl = per_dimension.sum(-1) / (1 if reduction == "sum" else LATENT)
    torch.testing.assert_close(out.kl, expected_kl, rtol=1e-4, atol=1e-5)

    query = model.prediction(model.projection(torch.cat((z, x.action), -1)))
    key, omega = model.target_prediction(z_next), model.bilinear.weight
    if negatives == "pooled":
        pairs = [(t, b) for t in range(length) for b in range(5)]
        queries, keys = (torch.stack([v[t, b] for t, b in pairs]) for v in (query, key))
        surprise = brute_infonce(queries, keys, omega).reshape(length, 5)
    else:
        surprise = np.stack([brute_infonce(query[t], key[t], omega) for t in range(length)])
    np.testing.assert_allclose(out.infonce.detach().numpy(), surprise, rtol=1e-4, atol=1e-5)

    expected = 0.3 * expected_kl.mean().item() + surprise.mean()
    assert out.loss.item() == pytest.approx(expected, rel=1e-4)
    candidates = length * 5 if negatives == "pooled" else 5
    bound = out.metrics["mutual_information_bound"].item()
    assert bound == pytest.approx(math.log(candidates) - surprise.mean(), rel=1e-4, abs=1e-5)


def test_pooled_and_step_negatives_agree_only_for_single_transitions() -> None:
    pooled, step = (bottleneck(small(negatives=kind)) for kind in ("pooled", "step"))
    for length in (1, 2):
        ours, theirs = (run(m, inputs(length)).infonce for m in (pooled, step))
        assert torch.allclose(ours, theirs) == (length == 1)


def test_a_doubled_batch_of_single_transitions_is_just_a_larger_batch() -> None:
    x = inputs(2)
    flat = Latents(*(v.detach().reshape(1, 10, *v.shape[2:]) for v in x))
    model = bottleneck()
    double, chunks = run(model, flat), run(model, x)
    assert double.infonce.shape == (1, 10)
    torch.testing.assert_close(double.loss, chunks.loss)
    torch.testing.assert_close(double.infonce.reshape(2, 5), chunks.infonce)


def test_metrics_are_the_documented_ones() -> None:
    x, model = inputs(2, 20), bottleneck()
    out = run(model, x)
    query = model.prediction(model.projection(torch.cat((out.z, x.action), -1))).flatten(0, 1)
    scores = query @ model.bilinear.weight @ model.target_prediction(out.z_next).flatten(0, 1).T
    hits = [max(range(40), key=lambda j: scores[i, j].item()) == i for i in range(40)]
    backwards = [max(range(40), key=lambda j: scores[j, i].item()) == i for i in range(40)]
    assert 0 < sum(hits) != sum(backwards)
    expected = {
        "kl": out.kl.mean().item(),
        "infonce": out.infonce.mean().item(),
        "infonce_accuracy": sum(hits) / 40,
        "mutual_information_bound": math.log(40) - out.infonce.mean().item(),
        "std_g": model.stochastic_encoder(x.c).std.mean().item(),
        "std_q": model.transition(torch.cat((out.z, x.action), -1)).std.mean().item(),
    }
    assert {name: value.item() for name, value in out.metrics.items()} == pytest.approx(expected)
    assert all(v.shape == () and not v.requires_grad for v in out.metrics.values())


# --- who learns from what -------------------------------------------------------------------

INPUTS = {"c", "action"}
ROUTES = {
    # term: modules and inputs that receive gradient; everything else must receive none
    "kl": {"stochastic_encoder", "transition"} | INPUTS,
    "infonce": {"stochastic_encoder", "projection", "prediction", "bilinear"} | INPUTS,
    "loss": {"stochastic_encoder", "transition", "projection", "prediction", "bilinear"} | INPUTS,
}


@pytest.mark.parametrize("term", ROUTES)
@pytest.mark.parametrize("negatives", ["pooled", "step"])
def test_gradient_reaches_exactly_what_the_paper_optimizes(term: str, negatives: str) -> None:
    model = bottleneck(small(negatives=negatives))
    x = Latents(*(v.detach().requires_grad_() for v in inputs(batch=32)))
    torch.autograd.backward(getattr(run(model, x), term).mean())
    for name, parameter in model.named_parameters():
        if name.split(".")[0] in ROUTES[term]:
            assert parameter.grad is not None and parameter.grad.any(), name
        else:
            assert parameter.grad is None or not parameter.grad.any(), name
    for name in ("c", "c_next", "action"):
        grad = getattr(x, name).grad
        assert (grad is not None and bool(grad.any())) == (name in ROUTES[term]), name


def test_without_alpha_the_divergence_is_watched_but_not_learned() -> None:
    with_alpha, without = bottleneck(small(alpha=0.1)), bottleneck(small(alpha=0.0))
    x = inputs()
    kept, dropped = run(with_alpha, x), run(without, x)
    torch.testing.assert_close(dropped.kl, kept.kl)
    assert dropped.metrics.keys() == kept.metrics.keys()
    torch.testing.assert_close(dropped.loss, kept.infonce.mean())
    assert not dropped.kl.requires_grad
    torch.autograd.backward(dropped.loss)
    assert all(p.grad is None for p in without.transition.parameters())
    assert all(p.grad is not None for p in without.stochastic_encoder.parameters())


def test_targets_start_equal_follow_by_tau_and_stay_out_of_the_optimizer() -> None:
    method = SIBE(D, A, small(tau=0.25, lr=3e-4), generator=seeded())
    model = method.bottleneck
    pairs = [
        (model.target_stochastic_encoder, model.stochastic_encoder),
        (model.target_prediction, model.prediction),
    ]
    weights = [
        (t, o) for a, b in pairs for t, o in zip(a.parameters(), b.parameters(), strict=True)
    ]
    assert all(torch.equal(target, online) for target, online in weights)
    (group,) = method.parameter_groups()
    assert group["lr"] == 3e-4
    stepped = {id(p) for p in group["params"]}
    assert stepped.isdisjoint(id(target) for target, _ in weights)
    assert len(stepped) + len(weights) == len(list(method.parameters()))

    before = [target.clone() for target, _ in weights]
    with torch.no_grad():
        for _, online in weights:
            online.add_(1)
    method.update_targets()
    for (target, _), old in zip(weights, before, strict=True):
        torch.testing.assert_close(target, old + 0.25)


# --- SIBE as a method -----------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, 0.001, 2.0])
def test_bonus_is_lambda_times_infonce_and_detached(scale: float) -> None:
    method = SIBE(D, A, small(intrinsic=scale), generator=seeded(3))
    x = inputs()
    out = method(x, seeded(9))
    inner = run(method.bottleneck, x)
    torch.testing.assert_close(out.bonus, scale * inner.infonce.detach())
    assert not out.bonus.requires_grad and (out.bonus >= 0).all()
    assert out.metrics["bonus"].item() == pytest.approx(out.bonus.mean().item())
    torch.testing.assert_close(out.loss, inner.loss)  # λ is no part of the loss


def test_embedding_is_the_mean_of_the_online_encoder() -> None:
    method = SIBE(D, A, SMALL, generator=seeded())
    c = inputs().c
    z = method.embed(c)["z"]
    assert not z.requires_grad
    torch.testing.assert_close(z, method.bottleneck.stochastic_encoder(c).mean.detach())
    draws = torch.stack([method.bottleneck(c, inputs().action, c, seeded(s)).z for s in range(200)])
    torch.testing.assert_close(draws.mean(0).detach(), z, atol=0.8, rtol=0)


def test_heads_have_the_papers_sizes() -> None:
    model = SequentialBottleneck(50, 6)
    counts = {n: sum(p.numel() for p in m.parameters()) for n, m in model.named_children()}

    def dense(*sizes: int) -> int:
        return sum(fan_in * fan_out + fan_out for fan_in, fan_out in pairwise(sizes))

    g, f = dense(50, 1024, 100) + 200, dense(50, 1024, 50)
    assert counts == {
        "stochastic_encoder": g,
        "target_stochastic_encoder": g,
        "transition": dense(56, 1024, 1024, 100) + 200,
        "projection": dense(56, 50),
        "prediction": f,
        "target_prediction": f,
        "bilinear": 2500,
    }


def test_it_learns_to_predict_and_to_compress() -> None:
    generator = seeded()
    model = SequentialBottleneck(4, 1, SIBEConfig(latent=4, hidden=64), generator=generator)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=2e-3)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator))[0]
    history = []
    for _ in range(400):
        c = torch.randn(2, 64, 4, generator=generator)
        action = torch.randn(2, 64, 1, generator=generator)
        out = model(c, action, c @ rotation, generator)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        model.update_targets()
        history.append([out.metrics["mutual_information_bound"], out.metrics["kl"]])
    bound, divergence = torch.tensor(history).T
    assert bound[:10].mean() < 0.3 < 1.0 < bound[-10:].mean()
    assert divergence[-10:].mean() < 0.5 * divergence[:5].mean()


@pytest.mark.parametrize("std", [0.05, 1.0])
def test_the_first_std_is_about_what_was_asked_for(std: float) -> None:
    model = SequentialBottleneck(D, A, small(first_std=std, latent=50), generator=seeded())
    out = run(model, inputs(4, 64))
    for name in ("std_g", "std_q"):
        assert 0.5 * std < out.metrics[name].item() < 3 * std


def test_heads_that_start_as_the_identity_prefer_equal_states() -> None:
    """With z_{t+1} = z_t the own key scores above the others, before anything was learned."""
    x = inputs(1, 64)
    above = {}
    for start in ("identity", "random"):
        model = bottleneck(small(start=start, first_std=1e-3, latent=50), apart=False)
        z = model.stochastic_encoder(x.c).mean
        query = model.prediction(model.projection(torch.cat((z, x.action), dim=-1)))
        scores = model.scores(query, model.prediction(z))
        above[start] = (scores.diagonal() > scores.mean(-1)).float().mean().item()
    assert above["identity"] > 0.95 > 0.7 > above["random"]


# --- robustness -----------------------------------------------------------------------------


@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e4])
def test_everything_stays_finite(layer_norm: bool, scale: float) -> None:
    method = SIBE(D, A, small(head_layer_norm=layer_norm), generator=seeded())
    x = inputs()
    c = (x.c.detach() * scale).requires_grad_()
    out = method(x._replace(c=c, c_next=x.c_next * -scale), seeded())
    out.loss.backward()
    gradients = [p.grad for p in method.parameters() if p.grad is not None]
    for value in (out.loss, out.bonus, *out.metrics.values(), c.grad, *gradients):
        assert torch.isfinite(value).all()


def test_one_transition_is_enough() -> None:
    out = run(bottleneck(), inputs(1, 1))
    assert out.infonce.item() == 0 and torch.isfinite(out.loss)


def test_one_seed_gives_one_result_whatever_the_global_state() -> None:
    def trial(seed: int) -> Tensor:
        torch.randn(7)  # disturb the global generator
        method = SIBE(D, A, SMALL, generator=seeded(seed))
        out = method(inputs(), seeded(seed))
        out.loss.backward()
        return torch.cat(
            [
                out.loss.detach()[None],
                out.bonus.flatten(),
                *(p.grad.flatten() for p in method.parameters() if p.grad is not None),
            ]
        )

    assert torch.equal(trial(1), trial(1))
    assert not torch.equal(trial(1), trial(2))


def test_state_dict_round_trip() -> None:
    source, target = bottleneck(), SequentialBottleneck(D, A, SMALL, generator=seeded(77))
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    x = inputs()
    assert not torch.equal(run(source, x).loss, run(target, x).loss)
    target.load_state_dict(torch.load(file, weights_only=True))
    for ours, theirs in zip(run(source, x)[:-1], run(target, x)[:-1], strict=True):
        assert torch.equal(ours, theirs)
    assert not any(p.requires_grad for p in target.target_prediction.parameters())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", -1.0),
        ("intrinsic", math.nan),
        ("alpha", math.inf),
        ("latent", 0),
        ("tau", 0.0),
        ("tau", 1.5),
        ("negatives", "all"),
        ("kl_reduction", "none"),
        ("lr", 0.0),
    ],
)
def test_meaningless_settings_are_refused_by_name(field: str, value: object) -> None:
    flag = field.replace("_", "-")
    with pytest.raises(UserError, match=rf"^--sibe\.{flag} must be"):
        small(**{field: value})


# --- the contract, for every method in the registry -----------------------------------------


def build(name: str) -> Method:
    return build_method(name, None, D, A, generator=seeded())


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("length", [1, 2])
def test_every_method_keeps_the_contract(name: str, length: int) -> None:
    method = build(name)
    x = inputs(length, 8)
    x.c_next.requires_grad_()
    out = method(x, seeded())
    assert out.loss.shape == () and torch.isfinite(out.loss)
    assert out.bonus.shape == (length, 8) and not out.bonus.requires_grad
    assert all(v.shape == () and not v.requires_grad for v in out.metrics.values())
    (out.loss + x.c.square().sum()).backward()
    assert x.c_next.grad is None
    method.update_targets()
    for value in method.embed(x.c).values():
        assert value.shape[:2] == (length, 8) and not value.requires_grad
    for group in method.parameter_groups():
        assert group["lr"] > 0 and all(p.requires_grad for p in group["params"])


def test_plain_sac_adds_nothing() -> None:
    method, x = build("none"), inputs()
    out = method(x)
    assert out.loss.item() == 0 and not out.loss.requires_grad and not out.bonus.any()
    assert not list(method.parameters()) and out.metrics == {} and method.embed(x.c) == {}
    assert method.policy_features(x.c) is x.c and method.parameter_groups() == []


def test_wrong_names_and_configs_are_the_users_error() -> None:
    with pytest.raises(UserError, match=r"'sib'; did you mean sibe\?.*known: sibe, db"):
        build("sib")
    with pytest.raises(UserError, match="takes a SIBEConfig"):
        build_method("sibe", METHODS["none"].config(), D, A)


# --- the bottleneck alone -------------------------------------------------------------------


@pytest.mark.parametrize("negatives", ["pooled", "step"])
def test_single_transitions_need_no_chunk_axis(negatives: str) -> None:
    model, x = bottleneck(small(negatives=negatives)), inputs(length=1)
    chunks = run(model, x)
    single = run(model, Latents(*(part[0] for part in x)))
    assert torch.equal(single.loss, chunks.loss)
    for name in ("infonce", "kl", "z", "z_next"):
        assert torch.equal(getattr(single, name), getattr(chunks, name)[0])
    assert single.z.shape == (5, LATENT)


@pytest.mark.parametrize("length", [None, 2])
def test_a_series_without_actions_needs_none(length: int | None) -> None:
    model = SequentialBottleneck(D, 0, SMALL, generator=seeded())
    c, c_next = (part if length else part[0] for part in inputs(length or 1)[:2])
    out = model(c, None, c_next, seeded(9))
    empty = torch.empty(*c.shape[:-1], 0)
    assert torch.equal(out.loss, model(c, empty, c_next, seeded(9)).loss)
    out.loss.backward()
    with pytest.raises(UserError, match=f"expects actions of size {A}"):
        bottleneck()(c, None, c_next)


def test_sizes_may_be_given_without_a_config() -> None:
    model = SequentialBottleneck(D, A, latent=3, hidden=8)
    assert model.config == SIBEConfig(latent=3, hidden=8)
    assert SequentialBottleneck(D, A, small(alpha=0), hidden=8).config == small(alpha=0, hidden=8)
    assert run(model, inputs()).z.shape == (2, 5, 3)
    with pytest.raises(UserError, match="latent must be at least 1"):
        SequentialBottleneck(D, A, latent=0)


def test_encode_gives_the_mean_of_z_with_gradient() -> None:
    model, c = bottleneck(), inputs().c.requires_grad_()
    z = model.encode(c)
    assert torch.equal(z, model.stochastic_encoder(c).mean)
    assert torch.equal(model.encode(c[0]), z[0])
    z.sum().backward()
    assert c.grad is not None and c.grad.abs().sum() > 0
