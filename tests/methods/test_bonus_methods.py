"""Proto-RL, disagreement, ICM and RND: equations, gradients, memory, and what the bonus means."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from method_inputs import build_method, random_latents, seeded
from torch import Tensor
from torch.nn import functional as F

from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.catalogue.registry import METHODS
from sibe.errors import UserError
from sibe.methods.base import Latents, Method, MethodOutput
from sibe.methods.disagreement import Disagreement
from sibe.methods.icm import ICM
from sibe.methods.proto import Proto, draw_per_prototype
from sibe.methods.rnd import RND
from sibe.replay.chunk import Chunk

D, A = 8, 2
SMALL: dict[str, dict[str, Any]] = {
    "proto": {"latent": 6, "hidden": 32, "prototypes": 16, "queue": 64},
    "disagreement": {"hidden": 32},
    "icm": {"latent": 6, "hidden": 32},
    "rnd": {"latent": 12, "hidden": 32},
    "sibe": {"latent": 16, "hidden": 64},
}
NAMES = [name for name in SMALL if name != "sibe"]  # it has tests of its own


def build(name: str, seed: int = 3, **changes: Any) -> Any:
    config = METHODS[name].config(**{**SMALL[name], **changes})
    return build_method(name, config, D, A, generator=seeded(seed))


def inputs(length: int = 2, batch: int = 5, seed: int = 1) -> Latents:
    return random_latents(D, A, length, batch, seed)


def learn(method: Method, batches: list[Latents], lr: float = 1e-3) -> list[MethodOutput]:
    """Update on each batch in turn, as the agent would; return what the method said."""
    (group,) = method.parameter_groups()
    optimizer = torch.optim.Adam(group["params"], lr=lr)
    generator, said = seeded(7), []
    for x in batches:
        out = method(x, generator)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        method.update_targets()
        said.append(out)
    return said


def numbers(out: MethodOutput) -> dict[str, float]:
    return {name: value.item() for name, value in out.metrics.items()}


# --- the equations, computed another way ----------------------------------------------------


def test_disagreement_is_the_variance_over_models_and_trains_on_the_norm_of_the_error() -> None:
    method: Disagreement = build("disagreement", intrinsic=0.5)
    x = inputs()
    out = method(x)
    weights = [w.detach().double().numpy() for w in method.models.weights]
    joint = torch.cat((x.c, x.action), -1).detach().double().numpy()
    said = np.stack([np.maximum(joint @ weights[0][k], 0) @ weights[1][k] for k in range(5)])
    error = np.sqrt(((said - x.c_next.double().numpy()) ** 2).sum(-1))
    variance = said.var(0, ddof=1).mean(-1)
    assert out.loss.item() == pytest.approx(error.mean(), rel=1e-5)
    spread = max(variance.std(), variance.mean())
    np.testing.assert_allclose(out.bonus.numpy(), 0.5 * variance / spread, rtol=1e-4)
    expected = (error.mean(), variance.mean(), (0.5 * variance / spread).mean())
    names = ("model_error", "disagreement", "bonus")
    assert numbers(out) == pytest.approx(dict(zip(names, expected, strict=True)), rel=1e-4)


def test_icm_pays_the_forward_error_and_adds_both_losses() -> None:
    method: ICM = build("icm", intrinsic=0.5)
    x = inputs()
    out = method(x)
    with torch.no_grad():
        now, after = method.features(x.c), method.features(x.c_next)
        inferred = method.inverse_model(torch.cat((now, after), -1))
        predicted = method.forward_model(torch.cat((now, x.action), -1))
    inverse = ((inferred - x.action) ** 2).sum(-1).numpy() / 2
    surprise = ((predicted - after) ** 2).sum(-1).numpy() / 2
    assert out.loss.item() == pytest.approx(inverse.mean() + surprise.mean(), rel=1e-5)
    bonus = 0.5 * surprise / max(surprise.std(), surprise.mean())
    np.testing.assert_allclose(out.bonus.numpy(), bonus, rtol=1e-4)
    names = ("inverse_error", "forward_error", "bonus")
    expected = (inverse.mean(), surprise.mean(), bonus.mean())
    assert numbers(out) == pytest.approx(dict(zip(names, expected, strict=True)), rel=1e-4)


def test_rnd_measures_standardized_clipped_next_states_by_everything_seen() -> None:
    method: RND = build("rnd", intrinsic=0.5)
    first, second = inputs(seed=1), inputs(seed=2)
    second = second._replace(c_next=second.c_next * 50)  # some of it beyond the clip
    before = method(first).loss.item()
    out = method(second)
    seen = torch.cat((first.c_next, second.c_next)).double().flatten(0, 1)
    scaled = ((second.c_next - seen.mean(0)) / seen.std(0, correction=0)).clamp(-5, 5).float()
    with torch.no_grad():
        errors = (method.predictor(scaled) - method.random(scaled)).square().mean(-1).numpy()
    assert out.loss.item() == pytest.approx(errors.mean(), rel=1e-4)
    assert numbers(out)["distillation_error"] == pytest.approx(errors.mean(), rel=1e-4)
    assert method.spread.count.item() == 20
    merged = (before + errors.mean()) / 2
    assert method.spread.mean.item() == pytest.approx(merged, rel=1e-4)
    expected = 0.5 * errors / max(method.spread.std.item(), merged)
    np.testing.assert_allclose(out.bonus.numpy(), expected, rtol=1e-4)


def test_proto_predicts_the_balanced_assignment_of_the_next_state() -> None:
    method: Proto = build("proto")
    with torch.no_grad():
        for parameter in method.target_projector.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=seeded(4)))
    x = inputs()
    out = method(x, seeded(5))
    with torch.no_grad():
        centers = method.prototypes / method.prototypes.norm(dim=1, keepdim=True)
        c, c_next = (v.reshape(10, D) for v in (x.c, x.c_next))
        level = (c - c.mean(0)) / (c.var(0, correction=0) + 1e-5).sqrt()
        source = method.predictor(method.projector(level))
        level = (c_next - c_next.mean(0)) / c_next.std(0, correction=0)  # the first minibatch
        target = method.target_projector(level)
    similarity = [
        (v / v.norm(dim=1, keepdim=True) @ centers.T).double().numpy() for v in (source, target)
    ]
    p, q = (np.exp(s / 0.1) for s in similarity)
    p /= p.sum(1, keepdims=True)
    use = (q / q.sum(1, keepdims=True)).mean(0)
    for _ in range(3):
        q /= q.sum(0, keepdims=True)
        q /= q.sum(1, keepdims=True)
    assert out.loss.item() == pytest.approx(-(q * np.log(p)).sum(1).mean(), rel=1e-4)
    perplexity = math.exp(-(use * np.log(use)).sum())
    assert numbers(out)["prototypes_used"] == pytest.approx(perplexity, rel=1e-4)


# --- Proto-RL's queue -----------------------------------------------------------------------


def test_candidates_are_drawn_by_the_softmax_over_the_batch() -> None:
    similarity = torch.tensor([[2.0, -3.0], [0.0, 1.0], [-1.0, 1.0]]).repeat_interleave(20_000, 1)
    drawn = draw_per_prototype(similarity, seeded()).reshape(2, 20_000)
    shares = torch.stack([(drawn == state).float().mean(1) for state in range(3)])
    expected = similarity[:, [0, 20_000]].softmax(0)
    torch.testing.assert_close(shares, expected, atol=0.015, rtol=0)


def test_the_queue_is_a_ring_of_distinct_states_measured_before_they_enter() -> None:
    method: Proto = build("proto", prototypes=16, queue=20)
    ring: list[Tensor] = []
    for step in range(6):
        x = inputs(2, 6, seed=step)
        known = torch.stack(ring[-20:]) if ring else torch.zeros(0, 6)
        moments = copy.deepcopy(method.inputs)  # what was known before
        out = method(x, seeded(step))
        level = (method.inputs if step == 0 else moments).standardize(x.c_next.flatten(0, 1))
        state = F.normalize(method.target_projector(level), dim=-1)
        assert method.filled.item() == min(len(ring) + _entered(method, ring, state), 20)
        if step == 0:
            assert not out.bonus.any()
            continue
        away = (state[:, None] - known).norm(dim=-1).sort(dim=-1).values[:, 2]
        torch.testing.assert_close(out.bonus.flatten(), 0.2 * away, atol=1e-6, rtol=1e-5)
    assert len(ring) > 40 and method.filled.item() == 20
    assert method.position.item() == len(ring) % 20
    order = (method.position + torch.arange(20)) % 20
    torch.testing.assert_close(method.queue[order], torch.stack(ring[-20:]))


def _entered(method: Proto, ring: list[Tensor], states: Tensor) -> int:
    """Append to ``ring`` those states that the queue has taken in since; return how many.

    They are found where the queue was next to be written, each at most once.
    """
    start, room = len(ring) % 20, len(ring)
    fresh = (method.position.item() - start) % 20
    rows = [method.queue[(start + i) % 20] for i in range(int(fresh))]
    which = [int((states - row).norm(dim=-1).argmin()) for row in rows]
    assert all(torch.equal(states[i], row) for i, row in zip(which, rows, strict=True))
    assert len(set(which)) == len(which) > 0
    ring.extend(rows)
    return len(ring) - room if room < 20 else 0


def test_a_state_is_as_new_whatever_else_is_in_the_minibatch() -> None:
    method: Proto = build("proto")
    learn(method, [inputs(seed=seed) for seed in range(5)])
    x, other = inputs(seed=8), inputs(seed=9)
    mixed = Latents(*(torch.cat((a, 3 * b), 1) for a, b in zip(x, other, strict=True)))
    alone, among = (copy.deepcopy(method)(v, seeded()).bonus for v in (x, mixed))
    torch.testing.assert_close(among[:, :5], alone)


def test_with_fewer_known_states_than_neighbors_there_is_no_bonus() -> None:
    method: Proto = build("proto", neighbors=5)
    first = method(inputs(1, 4), seeded())  # at most four states enter
    second, third = method(inputs(1, 8, 2), seeded()), method(inputs(1, 8, 3), seeded())
    assert not first.bonus.any() and not second.bonus.any() and (third.bonus > 0).all()


# --- who learns from what -------------------------------------------------------------------

ROUTES = {
    # parts that the loss moves; every other part, c_next and (but for ``c``) c get nothing
    "proto": {"projector", "predictor", "prototypes", "c"},
    "disagreement": {"models"},
    "icm": {"features", "inverse_model", "forward_model", "c"},
    "rnd": {"predictor"},
}


@pytest.mark.parametrize("name", NAMES)
def test_gradient_reaches_exactly_what_the_method_trains(name: str) -> None:
    method, x = build(name), Latents(*(v.detach().requires_grad_() for v in inputs(batch=32)))
    out = method(x, seeded())
    assert not out.bonus.requires_grad and out.bonus.shape == (2, 32)
    assert all(v.shape == () and not v.requires_grad for v in out.metrics.values())
    out.loss.backward()
    for part, parameter in method.named_parameters():
        moved = parameter.grad is not None and bool(parameter.grad.any())
        assert moved == (part.split(".")[0] in ROUTES[name]), part
    assert (x.c.grad is not None and bool(x.c.grad.any())) == ("c" in ROUTES[name])
    assert x.c_next.grad is None
    stepped = {id(p) for group in method.parameter_groups() for p in group["params"]}
    assert stepped == {id(p) for p in method.parameters() if p.requires_grad}


def test_icms_features_and_the_encoder_hear_the_inverse_model_only() -> None:
    method, x = build("icm"), inputs(batch=32)
    method(x).loss.backward()
    with_forward = [p.grad.clone() for p in method.features.parameters()], x.c.grad
    method.zero_grad()
    x = inputs(batch=32)
    now, after = method.features(x.c), method.features(x.c_next)
    inferred = method.inverse_model(torch.cat((now, after), -1))
    (0.5 * (inferred - x.action).square().sum(-1)).mean().backward()
    for one, other in zip(method.features.parameters(), with_forward[0], strict=True):
        torch.testing.assert_close(one.grad, other)
    torch.testing.assert_close(x.c.grad, with_forward[1])


def test_protos_target_follows_by_tau_and_rnds_random_network_never_moves() -> None:
    proto: Proto = build("proto", tau=0.25)
    before = [p.clone() for p in proto.target_projector.parameters()]
    with torch.no_grad():
        for p in proto.projector.parameters():
            p.add_(1)
    proto.update_targets()
    for target, old in zip(proto.target_projector.parameters(), before, strict=True):
        torch.testing.assert_close(target, old + 0.25)
    rnd: RND = build("rnd")
    drawn = [p.clone() for p in rnd.random.parameters()]
    learn(rnd, [inputs()] * 3)
    assert all(torch.equal(a, b) for a, b in zip(drawn, rnd.random.parameters(), strict=True))


# --- for all of them ------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_bonus_scales_with_its_coefficient_down_to_nothing(name: str) -> None:
    batches = [inputs(seed=seed) for seed in range(3)]
    said = {scale: learn(build(name, intrinsic=scale), batches) for scale in (0.0, 1.0, 3.0)}
    for nothing, one, three in zip(*said.values(), strict=True):
        assert not nothing.bonus.any()
        torch.testing.assert_close(three.bonus, 3 * one.bonus)
        assert torch.equal(nothing.loss, three.loss)  # the coefficient is no part of the loss
    assert (said[1.0][-1].bonus > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_gives_one_result_whatever_the_global_state(name: str) -> None:
    def trial(seed: int) -> Tensor:
        torch.randn(7)  # disturb the global generator
        method = build(name, seed)
        said = learn(method, [inputs(seed=s) for s in range(3)])
        state = [v.double().flatten() for v in method.state_dict().values()]
        return torch.cat([*state, *(out.bonus.double().flatten() for out in said)])

    assert torch.equal(trial(1), trial(1))
    assert not torch.equal(trial(1), trial(2))


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_method_goes_on_bit_for_bit(name: str) -> None:
    source, target, file = build(name), build(name, 77), io.BytesIO()
    learn(source, [inputs(batch=9, seed=s) for s in range(4)])
    torch.save(source.state_dict(), file)
    file.seek(0)
    target.load_state_dict(torch.load(file, weights_only=True))
    more = [inputs(batch=9, seed=s) for s in range(4, 12)]  # long enough for a queue to wrap
    for ours, theirs in zip(learn(source, more), learn(target, more), strict=True):
        assert torch.equal(ours.loss, theirs.loss) and torch.equal(ours.bonus, theirs.bonus)
        assert ours.metrics == theirs.metrics
    for key, value in source.state_dict().items():
        assert torch.equal(value, target.state_dict()[key]), key


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1.0, 1e4])
def test_everything_stays_finite(name: str, scale: float) -> None:
    method = build(name)
    for seed in range(2):
        x = inputs(seed=seed)
        c = (x.c.detach() * scale).requires_grad_()
        out = method(x._replace(c=c, c_next=x.c_next * -scale), seeded())
        method.zero_grad()
        out.loss.backward()
        gradients = [p.grad for p in method.parameters() if p.grad is not None]
        for value in (out.loss, out.bonus, *out.metrics.values(), *gradients):
            assert torch.isfinite(value).all()


@pytest.mark.parametrize("name", NAMES)
def test_in_the_agent_only_updates_are_remembered(name: str) -> None:
    agent = build_sac(preset_config("debug", method=name), A, seeded(), torch.device("cpu"))
    obs = torch.randint(0, 256, (3, 8, 32, 32, 9), dtype=torch.uint8, generator=seeded(1))
    action = torch.rand(2, 8, A, generator=seeded(2)) * 2 - 1
    chunk = Chunk(obs, action, torch.ones(2, 8), torch.ones(2, 8))
    before = copy.deepcopy(agent.method.state_dict())
    names = agent.metric_names()  # found by a dry run
    assert all(torch.equal(v, before[k]) for k, v in agent.method.state_dict().items())
    encoder = [p.clone() for p in agent.encoder.parameters()]
    metrics = agent.update(chunk)
    assert list(metrics) == names and all(v.isfinite() for v in metrics.values())
    assert all(
        not torch.equal(a, b) for a, b in zip(encoder, agent.encoder.parameters(), strict=True)
    )
    moments = [k for k in before if k.endswith("count")]
    assert moments and all(agent.method.state_dict()[k].item() == 16 for k in moments)


@pytest.mark.parametrize("name", ["proto", "icm"])
def test_the_embedding_is_what_the_method_compares(name: str) -> None:
    method, x = build(name), inputs()
    method(x, seeded())
    z = method.embed(x.c)["z"]
    assert z.shape == (2, 5, 6) and not z.requires_grad
    if name == "icm":
        expected = method.features(x.c)
    else:
        mean, std = x.c_next.mean((0, 1)), x.c_next.std((0, 1), correction=0)
        expected = F.normalize(method.projector((x.c - mean) / std), dim=-1)
    torch.testing.assert_close(z, expected)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        *((name, "intrinsic", bad) for name in NAMES for bad in (-1.0, math.nan, math.inf)),
        *((name, "lr", 0.0) for name in NAMES),
        *((name, "hidden", 0) for name in NAMES),
        ("icm", "latent", 2.5),
        ("rnd", "latent", -1),
        ("disagreement", "members", 1),
        ("proto", "tau", 0.0),
        ("proto", "temperature", 0.0),
        ("proto", "iterations", 0),
        ("proto", "queue", 15),
    ],
)
def test_meaningless_settings_are_refused_by_name(name: str, field: str, value: object) -> None:
    with pytest.raises(UserError, match=rf"^--{name}\.{field} must be .*, not"):
        METHODS[name].config(**{**SMALL[name], field: value})


# --- what the bonus means -------------------------------------------------------------------


def ring(low: float, high: float, batch: int, generator: torch.Generator) -> Latents:
    """Transitions of a point that actions push along a ring, starting in an arc of it.

    Seen through a fixed random map, as an encoder would show it.
    """
    mixing = torch.linalg.qr(torch.randn(D, D, generator=seeded(11)))[0]
    angle = low + (high - low) * torch.rand(2, batch, generator=generator)
    action = torch.rand(2, batch, A, generator=generator) * 2 - 1

    def see(at: Tensor) -> Tensor:
        waves = [f(k * at) for k in (1, 2) for f in (torch.sin, torch.cos)]
        return 2 * torch.stack([*waves, *[torch.zeros_like(at)] * (D - 4)], -1).matmul(mixing)

    after = angle + 0.3 * action[..., 0] + 0.1 * action[..., 1]
    return Latents(see(angle).requires_grad_(), see(after), action, torch.zeros(2, batch))


@pytest.mark.parametrize(
    ("name", "updates", "times"),
    # SIBE pays nats of InfoNCE: even what it has never seen it can tell from other transitions.
    [*((name, 200, 2.0) for name in NAMES), ("sibe", 600, 1.2)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_unvisited_half_of_a_ring_pays_more_than_the_visited_one(
    name: str, updates: int, times: float, seed: int
) -> None:
    generator, method = seeded(seed), build(name, seed)
    learn(method, [ring(0, math.pi, 32, generator) for _ in range(updates)])
    # Arcs away from the borders, where an action may cross over.
    visited = ring(0.5, math.pi - 0.5, 256, generator)
    unvisited = ring(math.pi + 0.5, 2 * math.pi - 0.5, 256, generator)
    both = Latents(*(torch.cat(pair, 1) for pair in zip(visited, unvisited, strict=True)))
    known, new = copy.deepcopy(method)(both, seeded(seed)).bonus.split(256, dim=1)
    assert new.mean() > times * known.mean()


def test_models_come_to_agree_on_repeated_transitions_and_not_on_new_ones() -> None:
    generator, method = seeded(), build("disagreement")
    repeated = ring(0, math.pi, 32, generator)
    new = ring(math.pi + 0.5, 2 * math.pi - 0.5, 32, generator)
    said = learn(method, [repeated] * 200)
    early, middle, late = (numbers(said[i])["disagreement"] for i in (0, 100, 199))
    assert early > 1.5 * middle > 1.5 * 2 * late
    assert numbers(method(new))["disagreement"] > 4 * late
