"""SAC: its losses against written-out formulas, and exactly which parameters each loss moves."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from sibe.agents.sac import losses
from sibe.agents.sac.agent import SAC, SAC_METRICS
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.kernels import half_convolutions
from sibe.methods.base import Latents
from sibe.methods.sibe import SIBE
from sibe.nn.gaussian import squashed_sample, standard_normal
from sibe.replay.chunk import Chunk

ACTIONS = 2


def make_config(method: str = "sibe", **sac: Any) -> RunConfig:
    config = preset_config("debug", method=method)
    return replace(config, sac=replace(config.sac, **sac))


def make_agent(config: RunConfig, seed: int = 0) -> SAC:
    return build_sac(config, ACTIONS, torch.Generator().manual_seed(seed), torch.device("cpu"))


def make_chunk(config: RunConfig, seed: int = 0, batch: int | None = None) -> Chunk:
    g = torch.Generator().manual_seed(seed)
    steps, size = sampling(config).length, config.env.size
    n = batch or sampling(config).batch
    return Chunk(
        torch.randint(0, 256, (steps + 1, n, size, size, 9), generator=g, dtype=torch.uint8),
        torch.rand(steps, n, ACTIONS, generator=g) * 2 - 1,
        torch.rand(steps, n, generator=g),
        torch.ones(steps, n),
    )


def parts(agent: SAC) -> dict[str, list[torch.Tensor]]:
    """All parameters of the agent by the names of the paper's components."""
    found: dict[str, list[torch.Tensor]] = {
        "encoder": list(agent.encoder.parameters()),
        "target_encoder": list(agent.target_encoder.parameters()),
        "critic": list(agent.critic.parameters()),
        "target_critic": list(agent.target_critic.parameters()),
        "actor": list(agent.actor.parameters()),
        "temperature": [agent.log_temperature],
    }
    if agent.config.method == "sibe":
        assert isinstance(agent.method, SIBE)
        for name, module in agent.method.bottleneck.named_children():
            found[name] = list(module.parameters())
    return found


def moved(before: dict[str, list[torch.Tensor]], agent: SAC) -> set[str]:
    after = parts(agent)
    return {
        name
        for name, old in before.items()
        if any(not torch.equal(a, b) for a, b in zip(old, after[name], strict=True))
    }


def snapshot(agent: SAC) -> dict[str, list[torch.Tensor]]:
    return {name: [p.detach().clone() for p in ps] for name, ps in parts(agent).items()}


def encode(agent: SAC, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    c = agent.encoder(chunk.obs[:-1])
    with torch.no_grad():
        return c, agent.target_encoder(chunk.obs[1:])


def encode_cut(agent: SAC, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As in the update: the encoder's output, a leaf in its place, and the target's."""
    encoded, c_next = encode(agent, chunk)
    return encoded, encoded.detach().requires_grad_(), c_next


ONLINE_METHOD = {"stochastic_encoder", "transition", "projection", "prediction", "bilinear"}


def step_critic_only(agent: SAC, chunk: Chunk) -> None:
    encoded, c, c_next = encode_cut(agent, chunk)
    loss, _ = agent._critic_loss(chunk, c, c_next, chunk.reward, chunk.discount)
    agent._step(encoded, c, loss, torch.zeros(()))


def step_method_only(agent: SAC, chunk: Chunk) -> None:
    encoded, c, c_next = encode_cut(agent, chunk)
    out = agent.method(Latents(c, c_next, chunk.action, chunk.reward), agent.generator)
    agent.optimizer.zero_grad(set_to_none=True)
    encoded.backward(agent._backward(out.loss, c))
    agent.optimizer.step()


def step_actor(agent: SAC, chunk: Chunk) -> None:
    agent._update_actor(encode(agent, chunk)[0][0].detach())


ROUTES = {
    "critic": (step_critic_only, {"encoder", "critic"}),
    "method": (step_method_only, {"encoder"} | ONLINE_METHOD),
    "actor and temperature": (step_actor, {"actor", "temperature"}),
    "targets": (
        lambda agent, _: agent._update_targets(),
        {"target_encoder", "target_critic", "target_stochastic_encoder", "target_prediction"},
    ),
}


@pytest.mark.parametrize("loss", ROUTES)
def test_each_loss_moves_exactly_its_parameters(loss: str) -> None:
    agent, chunk = make_agent(make_config()), make_chunk(make_config())
    step, expected = ROUTES[loss]
    if loss == "targets":  # a target that equals its online network cannot be seen to move
        agent.update(chunk)
    before = snapshot(agent)
    step(agent, chunk)
    assert moved(before, agent) == expected


def test_actor_loss_leaves_no_gradient_behind_on_the_critic() -> None:
    agent, chunk = make_agent(make_config()), make_chunk(make_config())
    agent.optimizer.zero_grad(set_to_none=True)
    step_actor(agent, chunk)
    assert all(p.grad is None for p in agent.critic.parameters())
    assert all(p.grad is None for p in agent.encoder.parameters())
    assert all(p.requires_grad for p in agent.critic.parameters())


def test_share_0_is_the_plain_sum_of_both_losses() -> None:
    """One backward pass through the convolutions gives what a pass per loss would."""
    config = make_config()
    assert config.encoder.method_share == 0
    agent, chunk = make_agent(config), make_chunk(config)
    twin = make_agent(config)
    twin.load_state_dict(copy.deepcopy(agent.state_dict()))
    agent.update(chunk)

    c, c_next = encode(twin, chunk)
    out = twin.method(Latents(c, c_next, chunk.action, chunk.reward), twin.generator)
    with torch.no_grad():
        action, log_prob = twin._act(c[1])
        later_q1, later_q2 = twin.target_critic(c_next[0], action)
        target = losses.td_target(
            (chunk.reward + out.bonus)[0],
            config.sac.discount * chunk.discount[0],
            later_q1,
            later_q2,
            log_prob,
            twin.temperature,
        )
    twin.optimizer.zero_grad()
    q1, q2 = twin.critic(c[0], chunk.action[0])
    losses.critic_loss(q1, q2, target).backward(retain_graph=True)
    out.loss.backward()
    twin.optimizer.step()
    for a, b in zip(agent.encoder.parameters(), twin.encoder.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    for a, b in zip(agent.critic.parameters(), twin.critic.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("share", [0.1, 1.0, 3.0])
def test_balanced_gives_the_method_its_share(share: float) -> None:
    g = torch.Generator().manual_seed(1)
    critic, method = 500 * torch.randn(2, 8, 4, generator=g), torch.randn(2, 8, 4, generator=g)
    felt = losses.balanced(critic, method, 1.0, share) - critic
    assert (felt.norm() / critic.norm()).item() == pytest.approx(share, rel=1e-3)
    cosine = torch.nn.functional.cosine_similarity(felt.flatten(), method.flatten(), dim=0)
    assert cosine.item() == pytest.approx(1, abs=1e-4)
    assert torch.equal(losses.balanced(critic, torch.zeros_like(method), 1.0, share), critic)
    assert torch.equal(losses.balanced(critic, method, 1.0), critic + method)
    assert torch.equal(losses.balanced(critic, method, 4.0), critic + 4 * method)


@pytest.mark.parametrize(("weight", "share"), [(1.0, 1.0), (4.0, 0.0)])
def test_the_encoder_feels_both_losses_and_the_critic_only_its_own(
    weight: float, share: float
) -> None:
    """The heads' own gradients are not scaled; the encoder's is the balanced one, by autograd."""
    config = make_config()
    encoder = replace(config.encoder, method_weight=weight, method_share=share)
    config = replace(config, encoder=encoder)
    agent, chunk = make_agent(config), make_chunk(config)
    twin = make_agent(config)
    twin.load_state_dict(copy.deepcopy(agent.state_dict()))
    agent.update(chunk)

    c, c_next = encode(twin, chunk)
    out = twin.method(Latents(c, c_next, chunk.action, chunk.reward), twin.generator)
    reward = chunk.reward + out.bonus
    loss, _ = twin._critic_loss(chunk, c, c_next, reward, 0.99 * chunk.discount)
    of_critic, of_method = (
        torch.autograd.grad(x, c, retain_graph=True)[0] for x in (loss, out.loss)
    )
    expected = torch.autograd.grad(
        c, list(twin.encoder.parameters()), losses.balanced(of_critic, of_method, weight, share)
    )
    for parameter, gradient in zip(agent.encoder.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)


def test_autocast_changes_the_convolutions_by_rounding_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of the kernels for late fusion, which this config does not use.
    monkeypatch.setattr(half_convolutions, "available", lambda: False)
    config = make_config()
    half = replace(config, encoder=replace(config.encoder, autocast=True))
    chunk = make_chunk(config)
    agents = make_agent(config), make_agent(half)
    exact, rounded = (agent.update(chunk) for agent in agents)
    for name in ("critic_loss", "infonce", "kl", "q"):
        torch.testing.assert_close(rounded[name], exact[name], rtol=0.05, atol=0.01)
    assert not torch.equal(rounded["critic_loss"], exact["critic_loss"])
    assert all(p.dtype == torch.float32 for p in agents[1].encoder.parameters())


def test_losses_against_written_out_formulas() -> None:
    g = torch.Generator().manual_seed(3)
    r, d, q1, q2, logp = (torch.randn(5, generator=g) for _ in range(5))
    alpha = torch.tensor(0.3)
    y = losses.td_target(r, d, q1, q2, logp, alpha)
    for i in range(5):
        expected = r[i] + d[i] * (min(q1[i], q2[i]) - 0.3 * logp[i])
        assert y[i].item() == pytest.approx(expected.item(), rel=1e-6)
    mse = torch.nn.functional.mse_loss
    torch.testing.assert_close(losses.critic_loss(q1, q2, y), mse(q1, y) + mse(q2, y))
    mean = sum(0.3 * logp[i] - min(q1[i], q2[i]) for i in range(5)) / 5
    torch.testing.assert_close(losses.actor_loss(logp, q1, q2, alpha), mean)


def test_time_limit_bootstraps_and_termination_does_not() -> None:
    config = make_config("none")
    agent = make_agent(config)
    with torch.no_grad():
        for p in agent.target_critic.parameters():
            p.zero_()
        agent.target_critic.q1[-1].get_parameter("bias").fill_(100.0)
        agent.target_critic.q2[-1].get_parameter("bias").fill_(100.0)
        agent.log_temperature.fill_(-50.0)
    chunk = make_chunk(config)
    seen: list[torch.Tensor] = []
    original = losses.critic_loss

    def spy(q1: torch.Tensor, q2: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen.append(target.clone())
        return original(q1, q2, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "critic_loss", spy)
        agent.update(chunk)  # a time limit stores discount 1
        agent.update(chunk._replace(discount=torch.zeros_like(chunk.discount)))
    torch.testing.assert_close(seen[0], chunk.reward[0] + 0.99 * 100.0, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(seen[1], chunk.reward[0])


def test_temperature_rises_below_the_target_entropy_and_falls_above() -> None:
    for entropy, sign in ((-10.0, 1), (10.0, -1)):
        log_temperature = torch.zeros((), requires_grad=True)
        log_prob = torch.full((4,), -entropy)
        losses.temperature_loss(log_temperature.exp(), log_prob, -2.0).backward()
        assert log_temperature.grad is not None
        assert -log_temperature.grad.sign().item() == sign


def test_zero_bonus_gives_the_targets_of_plain_sac() -> None:
    """λ = 0: the critic learns from the environment's reward alone."""
    config = make_config("sibe")
    config = replace(config, method_config=replace(config.method_config, intrinsic=0.0))
    metrics = make_agent(config).update(make_chunk(config))
    torch.testing.assert_close(metrics["batch_reward"], make_chunk(config).reward.mean())
    assert metrics["bonus"].item() == 0.0


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_n_step_against_a_loop_over_the_definition(n: int) -> None:
    g = torch.Generator().manual_seed(n)
    length, batch = 3, 4
    reward, discount = (torch.rand(length + n - 1, batch, generator=g) for _ in range(2))
    discount[length // 2, 1] = 0.0  # an episode that ends inside
    bonus = torch.rand(length, batch, generator=g)
    total, weight = losses.n_step(reward, bonus, discount)
    for t in range(length):
        for b in range(batch):
            expected, product = 0.0, 1.0
            for i in range(n):
                expected += product * (reward[t + i, b] + bonus[t, b]).item()
                product *= discount[t + i, b].item()
            assert total[t, b].item() == pytest.approx(expected, rel=1e-5)
            assert weight[t, b].item() == pytest.approx(product, rel=1e-5)


@pytest.mark.parametrize("method", ["none", "sibe"])
@pytest.mark.parametrize("transitions", ["first", "all"])
def test_n_steps_bootstrap_from_the_state_n_steps_on(method: str, transitions: str) -> None:
    config = make_config(method, n_step=3, transitions=transitions)
    agent, chunk = make_agent(config), make_chunk(config)
    length, batch = config.sac.chunk, config.sac.batch
    assert chunk.obs.shape[0] == length + 3
    rows = length if transitions == "all" else 1
    seen: list[torch.Tensor] = []
    original = losses.critic_loss

    def spy(q1: torch.Tensor, q2: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen.append(target.clone())
        return original(q1, q2, target)

    with torch.no_grad():
        # The same action for every state, without chance.
        agent.actor.trunk[-1].get_parameter("weight").zero_()
        agent.actor.trunk[-1].get_parameter("bias").copy_(torch.tensor([0.3, -0.2, -40.0, -40.0]))
        agent.log_temperature.fill_(-50.0)
        later = agent.target_encoder(chunk.obs[3 : 3 + rows]).flatten(0, 1)
        action = torch.tensor([0.3, -0.2]).tanh().expand(len(later), 2)
        value = torch.minimum(*agent.target_critic(later, action)).reshape(rows, batch)
        reward = sum(0.99**i * chunk.reward[i : i + rows] for i in range(3))
    if method == "sibe":
        assert isinstance(agent.method, SIBE)
        agent.method.config = replace(agent.method.config, intrinsic=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "critic_loss", spy)
        agent.update(chunk)
    expected = (reward + 0.99**3 * value).flatten()
    torch.testing.assert_close(seen[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("chunk_length", [1, 2, 4])
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("transitions", ["first", "all"])
@pytest.mark.parametrize("method", ["none", "sibe"])
def test_every_chunk_length_and_choice_of_transitions(
    chunk_length: int, n_step: int, transitions: str, method: str
) -> None:
    config = make_config(method, chunk=chunk_length, n_step=n_step, transitions=transitions)
    agent = make_agent(config)
    for _ in range(3):
        metrics = agent.update(make_chunk(config))
        assert all(torch.isfinite(value).all() for value in metrics.values())
    assert list(metrics) == agent.metric_names()
    assert set(SAC_METRICS) <= set(metrics)


def test_doubled_batch_for_the_method_leaves_sac_its_own() -> None:
    """The paper's ablation: L = 1, twice the chunks for the bottleneck, B for SAC."""
    config = make_config(chunk=1, method_batch=2)
    agent, chunk = make_agent(config), make_chunk(config)
    assert chunk.reward.shape == (1, 2 * config.sac.batch)
    assert agent._for_sac(chunk.reward).shape == (config.sac.batch,)
    agent.update(chunk)


def test_actor_and_targets_move_every_second_update() -> None:
    config = make_config()
    agent = make_agent(config)
    slow = {"actor", "temperature", "target_critic", "target_encoder"}
    seen = []
    for i in range(4):
        before = snapshot(agent)
        agent.update(make_chunk(config, i))
        seen.append(moved(before, agent) & slow)
    assert seen[1] == seen[3] == set()
    assert seen[2] == slow and {"actor", "temperature"} <= seen[0]


def test_state_round_trip_continues_bit_for_bit() -> None:
    config = make_config()
    agent, other = make_agent(config), make_agent(config, seed=9)
    agent.update(make_chunk(config))
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    for i in range(3):
        ours, theirs = agent.update(make_chunk(config, i)), other.update(make_chunk(config, i))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    for name, tensors in parts(agent).items():
        for a, b in zip(tensors, parts(other)[name], strict=True):
            assert torch.equal(a, b), name


def test_mean_action_is_the_limit_of_sampling() -> None:
    agent = make_agent(make_config())
    obs = make_chunk(make_config()).obs[0].numpy()
    mean = agent.act(obs, None)
    c = agent.encoder(torch.from_numpy(obs))
    mu, log_std = agent.actor(c)
    torch.testing.assert_close(torch.from_numpy(mean), mu.tanh().detach())
    g = torch.Generator().manual_seed(1)
    sampled = agent.act(obs, torch.Generator().manual_seed(1))
    expected, _ = squashed_sample(mu, log_std, standard_normal(mu, g))
    torch.testing.assert_close(torch.from_numpy(sampled), expected.detach())
