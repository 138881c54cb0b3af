"""Plan2Explore's ensemble and behavior: returns, routing of gradients, what the bonus means."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from method_inputs import seeded
from torch import Tensor

from sibe.agents.plan2explore.agent import Plan2Explore
from sibe.agents.plan2explore.behavior import LatentActor
from sibe.agents.plan2explore.disagreement import EnsembleDisagreement, disagreement
from sibe.agents.plan2explore.imagination import Imagined, imagine, lambda_returns, path_weights
from sibe.agents.plan2explore.networks import frozen
from sibe.agents.plan2explore.rssm import State
from sibe.catalogue.presets import preset_config
from sibe.config.schema import RunConfig
from sibe.replay.chunk import Chunk

ACTIONS = 2
Calls = list[tuple[Any, ...]]


def recorded(calls: Calls, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function``, which then notes the arguments of every call in ``calls``."""

    def call(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    return call


def make_config(**changes: Any) -> RunConfig:
    config = preset_config("debug", method="plan2explore")
    return replace(config, method_config=replace(config.method_config, **changes))


def make_agent(seed: int = 0, **changes: Any) -> Plan2Explore:
    return Plan2Explore(make_config(**changes), ACTIONS, seeded(seed), torch.device("cpu"))


def make_chunk(config: RunConfig, seed: int = 0) -> Chunk:
    g, own, size = seeded(seed), config.method_config, config.env.size
    t, b = own.sequence, own.batch
    return Chunk(
        torch.randint(0, 256, (t, b, size, size, 3), generator=g, dtype=torch.uint8),
        torch.rand(t - 1, b, ACTIONS, generator=g) * 2 - 1,
        torch.rand(t - 1, b, generator=g),
        torch.ones(t - 1, b),
    )


# --- imagination ----------------------------------------------------------------------------


def naive_lambda_return(r: Tensor, g: Tensor, v: Tensor, lam: float, t: int) -> float:
    """The definition: a mixture of all n-step returns from t on, the longest with the rest."""
    horizon, total = len(r), 0.0
    for n in range(1, horizon - t + 1):
        n_step, weight = 0.0, 1.0
        for k in range(t, t + n):
            n_step += weight * float(r[k])
            weight *= float(g[k])
        n_step += weight * float(v[t + n])
        last = t + n == horizon
        total += (lam ** (n - 1)) * (1.0 if last else 1 - lam) * n_step
    return total


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_lambda_returns_against_their_definition(lam: float) -> None:
    g = seeded(1)
    reward, discount = (torch.rand(6, 4, generator=g, dtype=torch.float64) for _ in range(2))
    value = torch.randn(7, 4, generator=g, dtype=torch.float64)
    discount[2, 1] = 0.0  # an end on the way
    returns = lambda_returns(reward, discount, value, lam)
    assert returns.shape == (6, 4)
    for t in range(6):
        for n in range(4):
            expected = naive_lambda_return(reward[:, n], discount[:, n], value[:, n], lam, t)
            assert returns[t, n].item() == pytest.approx(expected, rel=1e-9)


def test_weights_along_a_path() -> None:
    discount = torch.tensor([[0.9], [0.5], [0.0], [0.7]])
    torch.testing.assert_close(path_weights(discount), torch.tensor([[1.0], [0.9], [0.45], [0.0]]))


def start_states(agent: Plan2Explore, number: int = 5) -> State:
    deter, stoch = agent.model.rssm.sizes
    g = seeded(3)
    return State(torch.randn(number, deter, generator=g), torch.randn(number, stoch, generator=g))


def test_imagination_has_its_shapes_and_follows_the_model() -> None:
    agent = make_agent()
    start, rssm = start_states(agent), agent.model.rssm
    fed: list[Tensor] = []

    def policy(features: Tensor) -> Tensor:
        fed.append(features)
        return torch.full((5, ACTIONS), 0.1 * len(fed))

    path = imagine(rssm, start, policy, 4, seeded(7))
    assert path.features.shape == (5, 5, rssm.features) and path.action.shape == (4, 5, ACTIONS)
    assert not any(features.requires_grad for features in fed)
    state, g = start, seeded(7)
    for t in range(4):
        torch.testing.assert_close(fed[t], state.features)
        noise = torch.randn(state.stoch.shape, generator=g)
        state = rssm.imagine_step(state, torch.full((5, ACTIONS), 0.1 * (t + 1)), noise)
        torch.testing.assert_close(path.features[t + 1], state.features)


def test_the_actor_starts_broad_and_stays_bounded() -> None:
    actor = LatentActor(6, ACTIONS, 8, generator=seeded())
    mean, std = actor(torch.zeros(3, 6))
    torch.testing.assert_close(std, torch.full_like(std, 5.0), rtol=1e-3, atol=1e-3)
    mean, std = actor(1e6 * torch.randn(100, 6, generator=seeded(1)))
    assert mean.abs().max() <= 5 and std.min() >= 1e-4
    features = torch.randn(4, 6, generator=seeded(2))
    torch.testing.assert_close(actor.act(features, None), actor(features)[0].tanh())
    assert actor.act(features, seeded()).abs().max() <= 1


# --- what happened when ---------------------------------------------------------------------


def chunk_with_an_end(config: RunConfig) -> Chunk:
    chunk = make_chunk(config)
    chunk.discount[2, 1] = 0.0
    return chunk


def test_an_action_leads_to_the_frame_after_it_and_its_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = make_agent()
    model, chunk = agent.model, chunk_with_an_end(agent.config)
    fed: Calls = []
    observe = model.rssm.observe
    monkeypatch.setattr(model.rssm, "observe", recorded(fed, observe))
    out = model(chunk, seeded())
    ((_, action, _),) = fed
    assert not action[0].any()
    torch.testing.assert_close(action[1:], chunk.action)
    arrived = out.observed.state.features[1:]
    reward_loss = (model.reward_head(arrived)[..., 0] - chunk.reward).square().mean() / 2
    torch.testing.assert_close(out.metrics["reward_loss"], reward_loss.detach())
    on = torch.sigmoid(model.continue_head(arrived)[..., 0])
    right = torch.where(chunk.discount > 0, on, 1 - on)
    torch.testing.assert_close(out.metrics["continue_loss"], -right.log().mean().detach())


def test_the_ensemble_predicts_the_next_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent()
    chunk = make_chunk(agent.config)
    given: Calls = []
    fed: Calls = []
    update, loss = agent._update_ensemble, agent.ensemble.loss
    monkeypatch.setattr(agent, "_update_ensemble", recorded(given, update))
    monkeypatch.setattr(agent.ensemble, "loss", recorded(fed, loss))
    agent.update(chunk)
    ((_, out, *_),), ((features, action, target, _),) = given, fed
    torch.testing.assert_close(features, out.observed.state.features[:-1].flatten(0, 1))
    torch.testing.assert_close(action, chunk.action.flatten(0, 1))
    torch.testing.assert_close(target, out.embedding[1:].flatten(0, 1))


def test_imagined_steps_are_paid_and_discounted_where_they_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = make_agent()
    chunk = chunk_with_an_end(agent.config)
    fed: Calls = []
    outlook = agent.behaviors["task"].outlook
    monkeypatch.setattr(agent.behaviors["task"], "outlook", recorded(fed, outlook))
    agent.update(chunk)
    ((path, reward, discount, alive),) = fed
    with torch.no_grad():
        bonus = agent.own.intrinsic * agent.ensemble.bonus(path.features[:-1], path.action)
        torch.testing.assert_close(reward, agent.model.reward(path.features[1:]) + bonus)
        torch.testing.assert_close(discount, agent.model.discount(path.features[1:]))
    begins = alive.reshape(agent.own.sequence, agent.own.batch)
    assert begins[0].all() and begins[3, 1] == 0 and (begins == 0).sum() == 1


# --- which loss moves what ------------------------------------------------------------------


def parts(agent: Plan2Explore) -> dict[str, list[Tensor]]:
    return {name: list(network.parameters()) for name, network in agent.networks().items()}


def moved(agent: Plan2Explore, before: dict[str, list[Tensor]]) -> set[str]:
    pairs = ((name, zip(before[name], now, strict=True)) for name, now in parts(agent).items())
    return {name for name, both in pairs if any(not torch.equal(a, b) for a, b in both)}


def snapshot(agent: Plan2Explore) -> dict[str, list[Tensor]]:
    return {name: [p.detach().clone() for p in ps] for name, ps in parts(agent).items()}


@pytest.mark.parametrize("mode", ["combination", "zero_shot"])
def test_each_loss_moves_exactly_its_parameters(mode: str) -> None:
    agent = make_agent(mode=mode)
    chunk = make_chunk(agent.config)
    out = agent.model(chunk, agent.generator)
    before = snapshot(agent)
    agent._update_ensemble(chunk, out)
    assert moved(agent, before) == {"ensemble"}
    start = State(*(part.detach().flatten(0, 1) for part in out.observed.state))
    alive = torch.ones(len(start.deter))
    for name, prefix in (("task", ""), ("curious", "curious_")):
        if name in agent.behaviors:
            before = snapshot(agent)
            agent._update_behavior(name, agent.behaviors[name], start, alive)
            assert moved(agent, before) == {f"{prefix}actor", f"{prefix}value"}
    before = snapshot(agent)
    agent.update(chunk)
    assert moved(agent, before) == set(agent.networks())


def test_actor_loss_leaves_no_gradient_on_model_ensemble_or_value() -> None:
    agent = make_agent()
    behavior, start = agent.behaviors["task"], start_states(agent)
    with frozen(agent.model, behavior.value):
        path = imagine(
            agent.model.rssm, start, lambda x: behavior.actor.act(x, agent.generator), 3, None
        )
        reward, bonus = agent._reward("task", path)
        discount = agent.model.discount(path.features[1:])
        outlook = behavior.outlook(path, reward, discount, torch.ones(5))
        behavior.actor_loss(outlook).backward()
    assert not bonus.requires_grad and bonus.shape == (3, 5)
    others = (agent.model, agent.ensemble, behavior.value)
    assert all(p.grad is None for network in others for p in network.parameters())
    assert all(p.requires_grad for network in others for p in network.parameters())
    assert any(p.grad is not None and p.grad.any() for p in behavior.actor.parameters())


def test_value_regresses_on_the_return_and_the_ends_of_episodes_weigh_nothing() -> None:
    agent = make_agent()
    behavior, start = agent.behaviors["task"], start_states(agent)
    path = imagine(agent.model.rssm, start, lambda x: torch.zeros(5, ACTIONS), 3, seeded())
    path = Imagined(path.features.detach(), path.action)
    alive = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0])
    outlook = behavior.outlook(path, torch.ones(3, 5), torch.full((3, 5), 0.9), alive)
    assert not outlook.weight[:, 1].any()
    torch.testing.assert_close(outlook.weight[:, 0], torch.tensor([1.0, 0.9, 0.81]))
    value = behavior.value(path.features[:-1]).squeeze(-1).tolist()
    weight, returns = outlook.weight.tolist(), outlook.returns.tolist()
    expected = sum(
        weight[t][n] * 0.5 * (value[t][n] - returns[t][n]) ** 2 for t in range(3) for n in range(5)
    )
    assert behavior.value_loss(path, outlook).item() == pytest.approx(expected / 15, rel=1e-4)


def test_behavior_learns_what_its_reward_asks_for() -> None:
    """With a reward head that pays for the first action's effect, the actor finds that action."""
    agent = make_agent(actor_lr=1e-2, value_lr=1e-2, intrinsic=0.0, deterministic=8)
    behavior, start = agent.behaviors["task"], start_states(agent, 16)
    direction = torch.randn(agent.model.rssm.features, generator=seeded(9))
    agent.model.reward = lambda features: features @ direction  # type: ignore[method-assign]
    paid = [
        float(agent._update_behavior("task", behavior, start, torch.ones(16))["imagined_reward"])
        for _ in range(60)
    ]
    assert sum(paid[-10:]) / 10 > sum(paid[:10]) / 10 + 0.1


# --- the bonus ------------------------------------------------------------------------------


def test_disagreement_is_the_variance_over_members() -> None:
    predictions = torch.randn(5, 2, 3, 7, generator=seeded(1))
    zero = torch.zeros(())
    mean = sum((predictions[k] for k in range(5)), zero) / 5
    expected = sum(((predictions[k] - mean) ** 2 for k in range(5)), zero) / 5
    torch.testing.assert_close(disagreement(predictions), expected.sum(-1) / 7)


def test_the_bonus_scales_and_carries_no_gradient() -> None:
    features = torch.randn(4, 6, generator=seeded(1)).requires_grad_()
    action = torch.randn(4, ACTIONS, generator=seeded(2)).requires_grad_()
    one, ten = (
        EnsembleDisagreement(
            make_config(disagreement_scale=scale).method_config, 6, ACTIONS, 3, generator=seeded()
        ).bonus(features, action)
        for scale in (1.0, 10.0)
    )
    assert one.shape == (4,) and not one.requires_grad
    torch.testing.assert_close(10 * one, ten)


def test_each_member_gets_a_resample_of_its_own() -> None:
    model = EnsembleDisagreement(make_config().method_config, 6, ACTIONS, 3, generator=seeded())
    features, action = torch.randn(40, 6), torch.randn(40, ACTIONS)
    target = torch.randn(40, 3)
    loss = model.loss(features, action, target, seeded(4))
    pick = torch.randint(40, (5, 40), generator=seeded(4))
    assert not torch.equal(pick[0], pick[1])
    inputs, expected = torch.cat((features, action), -1), 0.0
    for k in range(5):
        predicted = model.ensemble(inputs[pick[k]])[k]
        expected += (predicted - target[pick[k]]).square().mean().item()
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_disagreement_falls_on_what_is_repeated_and_stays_on_what_is_new() -> None:
    g = seeded(5)
    model = EnsembleDisagreement(
        make_config(ensemble_hidden=64).method_config, 6, ACTIONS, 8, generator=g
    )
    seen = torch.randn(128, 6, generator=g) + 2.0
    new = torch.randn(128, 6, generator=g) - 2.0
    action = torch.rand(128, ACTIONS, generator=g) * 2 - 1
    target = torch.randn(6, 8, generator=g)
    first = model.bonus(seen, action).mean()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        optimizer.zero_grad()
        model.loss(seen, action, (seen @ target).tanh(), g).backward()
        optimizer.step()
    now, elsewhere = model.bonus(seen, action).mean(), model.bonus(new, action).mean()
    assert now < 0.2 * first and elsewhere > 3 * now


def square_at(x: int, config: RunConfig, push: float) -> Chunk:
    """Frames of a bright square that moves on from column ``x``, and actions of one sign."""
    chunk = make_chunk(config)
    obs = torch.zeros_like(chunk.obs)
    for t in range(len(obs)):
        for b in range(obs.shape[1]):
            obs[t, b, 8 + 2 * b : 14 + 2 * b, x + t : x + t + 6] = 255
    return chunk._replace(obs=obs, action=push * chunk.action.abs())


def test_the_whole_agent_pays_more_for_the_unvisited_part() -> None:
    agent = make_agent(model_lr=3e-3, horizon=1, hidden=32, stochastic=16, ensemble_hidden=64)
    visited, unvisited = (square_at(x, agent.config, s) for x, s in ((2, -1.0), (20, 1.0)))
    for _ in range(80):
        agent.update(visited)
    for _ in range(100):  # the ensemble catches up with a model that stands still
        with torch.no_grad():
            out = agent.model(visited, agent.generator)
        agent._update_ensemble(visited, out)
    bonus = []
    with torch.no_grad():
        for chunk in (visited, unvisited):
            features = agent.model(chunk, seeded(1)).observed.state.features[:-1]
            bonus.append(agent.ensemble.bonus(features, chunk.action).mean().item())
    assert bonus[1] > 1.5 * bonus[0]


def test_zero_scale_pays_for_the_task_alone() -> None:
    agent = make_agent(intrinsic=0.0)
    path = imagine(agent.model.rssm, start_states(agent), lambda _: torch.ones(5, 2), 2, seeded())
    reward, bonus = agent._reward("task", path)
    assert not bonus.any()
    torch.testing.assert_close(reward, agent.model.reward(path.features[1:]))


def test_zero_shot_keeps_task_and_curiosity_apart() -> None:
    agent = make_agent(mode="zero_shot")
    path = imagine(agent.model.rssm, start_states(agent), lambda _: torch.ones(5, 2), 2, seeded())
    task, none = agent._reward("task", path)
    torch.testing.assert_close(task, agent.model.reward(path.features[1:]))
    assert not none.any()
    curious, bonus = agent._reward("curious", path)
    torch.testing.assert_close(curious, agent.ensemble.bonus(path.features[:-1], path.action))
    torch.testing.assert_close(curious, bonus)
    assert agent.actor(True) is agent.behaviors["curious"].actor
    assert agent.actor(False) is agent.behaviors["task"].actor


@pytest.mark.parametrize("mode", ["combination", "zero_shot"])
def test_state_round_trip_continues_bit_for_bit(mode: str) -> None:
    agent, other = make_agent(mode=mode), make_agent(9, mode=mode)
    agent.update(make_chunk(agent.config))
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    for i in range(3):
        chunk = make_chunk(agent.config, i)
        ours, theirs = agent.update(chunk), other.update(chunk)
        assert list(ours) == agent.metric_names()
        assert all(torch.isfinite(value) and value.shape == () for value in ours.values())
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert other.updates == agent.updates == 4
    for name, tensors in parts(agent).items():
        assert all(torch.equal(a, b) for a, b in zip(tensors, parts(other)[name], strict=True))


def test_one_seed_one_result() -> None:
    one, two, three = make_agent(1), make_agent(1), make_agent(2)
    chunk = make_chunk(one.config)
    first, second, third = (agent.update(chunk) for agent in (one, two, three))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["model_loss"], third["model_loss"])
