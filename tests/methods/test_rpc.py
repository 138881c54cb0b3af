"""RPC's cost, price and gradients, against the equations computed another way."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from method_inputs import seeded
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from sibe.agents.sac.agent import SAC
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.methods.base import Latents
from sibe.methods.rpc import HIGHEST_STD, LOWEST_STD, RPC, RPCConfig, dual_loss, gaussian
from sibe.replay.chunk import Chunk

D, A, LATENT = 6, 2, 4
SMALL = RPCConfig(latent=LATENT, hidden=16, lambda_init=0.25)


def make_method(**changes: Any) -> RPC:
    """A method whose model has been given something to say."""
    method = RPC(D, A, replace(SMALL, **changes), generator=seeded())
    last = method.model.network[-1]
    assert isinstance(last, torch.nn.Linear)
    torch.nn.init.normal_(last.weight, std=0.5, generator=seeded(2))
    return method


def make_latents(length: int = 2, batch: int = 5) -> Latents:
    generator = seeded(1)
    c, c_next = torch.randn(2, length, batch, D, generator=generator)
    action = torch.rand(length, batch, A, generator=generator) * 2 - 1
    return Latents(c, c_next, action, torch.rand(length, batch, generator=generator))


def make_agent(steps: int = 0, **changes: Any) -> SAC:
    config = preset_config("debug", method="rpc")
    config = replace(config, method_config=replace(config.method_config, latent=5, **changes))
    agent = build_sac(config, A, seeded(), torch.device("cpu"))
    for i in range(steps):
        agent.update(make_chunk(config, i))
    return agent


def make_chunk(config: RunConfig, seed: int = 0) -> Chunk:
    g, steps, size, n = seeded(seed), config.sac.chunk, config.env.size, config.sac.batch
    return Chunk(
        torch.randint(0, 256, (steps + 1, n, size, size, 9), generator=g, dtype=torch.uint8),
        torch.rand(steps, n, A, generator=g) * 2 - 1,
        torch.rand(steps, n, generator=g),
        torch.ones(steps, n),
    )


def expected_nats(method: RPC, x: Latents, seed: int) -> Tensor:
    """KL(φ(z'|c') ‖ m(z'|z, a)), z from φ(z|c), by torch's own distributions; ``[L, B]``."""
    past, seen = (Normal(*_moments(method.policy_encoder(c))) for c in (x.c, x.c_next))
    noise = torch.randn(past.mean.shape, generator=seeded(seed))
    predicted = Normal(*_moments(method.model(past.mean + past.stddev * noise, x.action)))
    return kl_divergence(seen, predicted).sum(-1)


def _moments(g: Any) -> tuple[Tensor, Tensor]:
    return g.mean, g.log_std.exp()


def test_the_cost_is_the_kl_of_torch_distributions() -> None:
    method, x = make_method(reward_cost=0.5), make_latents()
    out = method(x, seeded(3))
    nats = expected_nats(method, x, 3).detach()
    torch.testing.assert_close(out.bonus, -0.5 * 0.25 * nats)
    torch.testing.assert_close(out.loss.detach(), nats.mean())
    torch.testing.assert_close(out.metrics["kl"], nats.mean())
    torch.testing.assert_close(out.metrics["bits"], nats.mean() / math.log(2))
    torch.testing.assert_close(out.metrics["lambda"], torch.tensor(0.25))
    term = method.actor_loss(x, seeded(3))
    torch.testing.assert_close(term.detach(), 0.25 * nats.mean())


def test_the_model_starts_by_predicting_that_nothing_changes() -> None:
    model = RPC(D, A, SMALL, generator=seeded()).model
    z, action = torch.randn(7, LATENT), torch.randn(7, A)
    predicted = model(z, action)
    assert torch.equal(predicted.mean, z) and torch.equal(predicted.std, torch.ones_like(z))


def test_the_noise_has_a_floor_and_a_ceiling() -> None:
    raw = torch.tensor([-1e4, -2.0, 0.0, 2.0, 1e4])
    std = gaussian(torch.zeros(5), raw).std
    torch.testing.assert_close(std[[0, 2, 4]], torch.tensor([LOWEST_STD, 1.0, HIGHEST_STD]))
    assert (std.diff() > 0).all()


def test_dual_loss_has_value_0_and_the_gradient_of_the_lagrangian() -> None:
    log_lambda = torch.tensor(0.7, requires_grad=True)
    loss = dual_loss(log_lambda, torch.tensor([[1.0, 5.0]]), 2.5)
    loss.backward()
    assert loss.item() == 0
    assert log_lambda.grad is not None and log_lambda.grad.item() == pytest.approx(-(3.0 - 2.5))


@pytest.mark.parametrize("constraint, sign", [(0.0, 1), (1e4, -1)])
def test_the_price_rises_above_the_constraint_and_falls_below(constraint: float, sign: int) -> None:
    agent = make_agent(constraint=constraint, lambda_init=0.1, dual_lr=0.01)
    prices = [agent.update(make_chunk(agent.config, i))["lambda"].item() for i in range(5)]
    assert prices[0] == pytest.approx(0.1)
    assert prices == sorted(prices, reverse=sign < 0) and len(set(prices)) == 5


def test_the_price_stays_in_its_range_and_so_can_come_back() -> None:
    agent = make_agent(constraint=1e4, dual_lr=1.0)
    for i in range(4):
        price = agent.update(make_chunk(agent.config, i))["lambda"].item()
        assert price == pytest.approx(1e-6, rel=1e-4)


def moved(agent: SAC, before: dict[str, Tensor]) -> set[str]:
    now = agent.method.named_parameters()
    return {name.split(".")[0] for name, value in now if not torch.equal(value, before[name])}


def weights(agent: SAC) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in agent.method.named_parameters()}


def test_each_loss_moves_its_own_part() -> None:
    agent = make_agent(steps=2, lambda_init=0.1)
    chunk = make_chunk(agent.config, 9)
    encoded = agent.encoder(chunk.obs[:-1])
    c = encoded.detach().requires_grad_()
    c_next = agent.target_encoder(chunk.obs[1:])
    x = Latents(c, c_next, chunk.action, chunk.reward)
    out = agent.method(x, agent.generator)

    assert not agent._backward(out.loss, c).any()  # φ and so the encoder hear nothing of it
    before = weights(agent)
    agent.optimizer.step()
    assert moved(agent, before) == {"model", "log_lambda"}

    before = weights(agent)
    encoder = [p.clone() for p in agent.encoder.parameters()]
    term = agent.method.actor_loss(x._replace(c=c.detach()), agent.generator)
    assert term is not None
    agent._update_actor(c[0].detach(), term)
    assert moved(agent, before) == {"policy_encoder"}
    assert all(map(torch.equal, encoder, agent.encoder.parameters()))


def test_the_cost_alone_teaches_phi_but_not_through_the_past() -> None:
    method, x = make_method(), make_latents()
    x.c.requires_grad_()
    term = method.actor_loss(x, seeded(3))
    expected = torch.autograd.grad(
        0.25 * expected_nats_with_constant_model(method, x, 3).mean(),
        list(method.policy_encoder.parameters()),
    )
    term.backward()
    for parameter, gradient in zip(method.policy_encoder.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert x.c.grad is None
    assert all(p.grad is None for p in (*method.model.parameters(), method.log_lambda))


def expected_nats_with_constant_model(method: RPC, x: Latents, seed: int) -> Tensor:
    with torch.no_grad():
        past = method.policy_encoder(x.c)
        noise = torch.randn(past.mean.shape, generator=seeded(seed))
        predicted = Normal(*_moments(method.model(past.mean + past.std * noise, x.action)))
    seen = method.policy_encoder(x.c_next)
    return kl_divergence(Normal(*_moments(seen)), predicted).sum(-1)


def test_the_critic_learns_from_the_reward_less_its_cost() -> None:
    agent = make_agent(lambda_init=0.5)
    chunk = make_chunk(agent.config)
    metrics = agent.update(chunk)
    expected = chunk.reward.mean() - 0.5 * metrics["kl"]
    torch.testing.assert_close(metrics["batch_reward"], expected)
    assert metrics["bonus"].item() < 0


def test_the_cost_is_part_of_the_actors_loss() -> None:
    """Two prices, all else equal: the losses differ by the difference of their costs."""
    losses: list[Tensor] = []
    costs: list[Tensor] = []
    for price in (1e-6, 50.0):
        agent = make_agent(lambda_init=price, reward_cost=0.0, dual_lr=1e-9)
        chunk, original = make_chunk(agent.config), agent.method.actor_loss

        def spy(x: Latents, g: Any = None, original: Any = original) -> Tensor:
            costs.append(original(x, g))
            return costs[-1]

        agent.method.actor_loss = spy  # type: ignore[method-assign, assignment]
        losses.append(agent.update(chunk)["actor_loss"])
    assert costs[1] > 1e6 * costs[0]
    torch.testing.assert_close(losses[1] - losses[0], costs[1] - costs[0], rtol=1e-3, atol=1e-2)


def test_the_actor_sees_z_and_the_critic_c() -> None:
    agent = make_agent()
    features = agent.config.encoder.features
    assert agent.actor.trunk[0].in_features == 5 != features
    assert agent.critic.q1[0].in_features == features + A
    assert agent.state_dict()["actor"]["trunk.4.bias"].numel() == 2 * A  # load_policy reads it

    obs = make_chunk(agent.config).obs[0]
    assert isinstance(agent.method, RPC)
    with torch.no_grad():
        z = agent.method.policy_encoder(agent.encoder(obs))
        mean, _ = agent.actor(z.mean)
        torch.testing.assert_close(torch.from_numpy(agent.act(obs.numpy(), None)), mean.tanh())
        g = seeded(4)
        sample = z.mean + z.std * torch.randn(z.mean.shape, generator=g)
        mean, log_std = agent.actor(sample)
        action = (mean + log_std.exp() * torch.randn(mean.shape, generator=g)).tanh()
    torch.testing.assert_close(torch.from_numpy(agent.act(obs.numpy(), seeded(4))), action)


def test_a_tighter_constraint_lowers_the_bits() -> None:
    """White noise to look at, so nothing can be predicted: bits are saved by not looking."""
    used = {}
    for constraint in (0.5, 3.0, 1000.0):
        agent = make_agent(constraint=constraint, lambda_init=0.1, dual_lr=0.03, lr=3e-3)
        chunks = [make_chunk(agent.config, i) for i in range(8)]
        nats = [agent.update(chunks[i % 8])["kl"].item() for i in range(250)]
        used[constraint] = sum(nats[-25:]) / 25
    assert used[0.5] < used[3.0] < used[1000.0]
    assert used[0.5] < 1.0 and used[3.0] < 6.0, used


@pytest.mark.parametrize(
    "field, value",
    [
        ("constraint", -1.0),
        ("constraint", math.inf),
        ("reward_cost", math.nan),
        ("latent", 0),
        ("hidden", 0),
        ("lr", 0.0),
        ("dual_lr", -1.0),
        ("lambda_init", 0.0),
    ],
)
def test_meaningless_settings_are_refused_by_name(field: str, value: Any) -> None:
    flag = field.replace("_", "-")
    with pytest.raises(UserError, match=rf"^--rpc\.{flag} must be"):
        replace(SMALL, **{field: value})
