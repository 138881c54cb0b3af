"""What every method of SAC must keep, whatever it does: the registry decides who is tested here."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from method_inputs import build_method, seeded
from torch import Tensor

from sibe.agents.sac import losses
from sibe.agents.sac.agent import SAC
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import PRESETS, preset_config
from sibe.catalogue.registry import METHODS
from sibe.catalogue.run_config import check, from_json, to_json
from sibe.config.schema import RunConfig
from sibe.methods.base import Latents, Method
from sibe.methods.entry import Entry
from sibe.replay.chunk import Chunk

ACTIONS, BATCH = 2, 8
# An entry that brings a whole standalone agent, instead of a method, has other contracts.
SAC_METHODS = [name for name, entry in METHODS.items() if isinstance(entry, Entry)]
WITH_BONUS = [name for name in SAC_METHODS if METHODS[name].bonus_field is not None]
every_method = pytest.mark.parametrize("name", SAC_METHODS)


def make_config(name: str) -> RunConfig:
    return preset_config("debug", method=name)


def make_method(name: str, seed: int = 0) -> Method:
    config = make_config(name)
    return build_method(
        name, config.method_config, config.encoder.features, ACTIONS, generator=seeded(seed)
    )


def make_latents(name: str, length: int = 2, seed: int = 1) -> Latents:
    generator, features = seeded(seed), make_config(name).encoder.features
    c, c_next = torch.randn(2, length, BATCH, features, generator=generator)
    action = torch.rand(length, BATCH, ACTIONS, generator=generator) * 2 - 1
    reward = torch.rand(length, BATCH, generator=generator)
    return Latents(c.requires_grad_(), c_next, action, reward)


def make_agent(config: RunConfig, seed: int = 0) -> SAC:
    return build_sac(config, ACTIONS, seeded(seed), torch.device("cpu"))


def make_chunk(config: RunConfig, seed: int = 0) -> Chunk:
    g, steps, size, n = seeded(seed), config.sac.chunk, config.env.size, config.sac.batch
    return Chunk(
        torch.randint(0, 256, (steps + 1, n, size, size, 9), generator=g, dtype=torch.uint8),
        torch.rand(steps, n, ACTIONS, generator=g) * 2 - 1,
        torch.rand(steps, n, generator=g),
        torch.ones(steps, n),
    )


def warmed_up(config: RunConfig, seed: int = 0) -> SAC:
    agent = make_agent(config, seed)
    for i in range(3):
        agent.update(make_chunk(config, i))
    return agent


def copied(state: Any) -> Any:
    """State as a checkpoint keeps it: bytes and back, plain values and tensors only."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def ids(groups: list[Any]) -> list[int]:
    return [id(parameter) for group in groups for parameter in group["params"]]


def test_the_methods_of_sac_are_found() -> None:
    assert {"none", "sibe", "rpc"} <= set(SAC_METHODS)


@every_method
@pytest.mark.parametrize("length", [1, 2, 3])
def test_shapes_and_finite_values(name: str, length: int) -> None:
    method, x = make_method(name), make_latents(name, length)
    out = method(x, seeded())
    assert out.loss.shape == () and torch.isfinite(out.loss)
    assert out.bonus.shape == (length, BATCH) and torch.isfinite(out.bonus).all()
    assert not out.bonus.requires_grad
    for metric, value in out.metrics.items():
        assert value.shape == () and not value.requires_grad and torch.isfinite(value), metric
    for c in (x.c, x.c[0], x.c[0, :1]):
        features = method.policy_features(c, generator=seeded())
        assert features.shape[:-1] == c.shape[:-1]
        assert torch.equal(method.policy_features(c), method.policy_features(c))
        for key, value in method.embed(c).items():
            assert value.shape[:-1] == c.shape[:-1] and not value.requires_grad, key
            assert torch.equal(value, method.embed(c)[key]), key


@every_method
def test_the_loss_moves_what_it_may(name: str) -> None:
    method, x = make_method(name), make_latents(name)
    x.c_next.requires_grad_()
    out = method(x, seeded())
    if out.loss.requires_grad:
        out.loss.backward()
    assert x.c_next.grad is None
    allowed = set(ids(method.parameter_groups()))
    for key, parameter in method.named_parameters():
        assert id(parameter) in allowed or parameter.grad is None, key


@every_method
def test_groups_hold_every_trained_parameter_once(name: str) -> None:
    method = make_method(name)
    groups = [*method.parameter_groups(), *method.actor_parameter_groups()]
    trained = [id(p) for p in method.parameters() if p.requires_grad]
    assert sorted(ids(groups)) == sorted(trained)
    assert all(0 < group["lr"] < 1 for group in groups)


@every_method
def test_an_update_gives_every_trained_parameter_a_gradient_and_no_other(name: str) -> None:
    agent = make_agent(make_config(name))
    agent.update(make_chunk(agent.config))
    for network in (agent.encoder, agent.critic, agent.actor, agent.method):
        for key, parameter in network.named_parameters():
            assert (parameter.grad is not None) == parameter.requires_grad, key
    for network in (agent.target_encoder, agent.target_critic):
        assert all(p.grad is None and not p.requires_grad for p in network.parameters())


@every_method
def test_the_actor_moves_itself_and_its_features_only(name: str) -> None:
    config = make_config(name)
    agent, chunk = warmed_up(config), make_chunk(config, 9)
    before = copied({k: network.state_dict() for k, network in agent.networks().items()})
    agent.optimizer.zero_grad(set_to_none=True)
    c = agent.encoder(chunk.obs[:-1])
    c_next = agent.target_encoder(chunk.obs[1:])
    x = Latents(c.detach(), c_next, chunk.action, chunk.reward)
    term = agent.method.actor_loss(x, agent.generator)
    agent._update_actor(c[0].detach(), term)
    assert all(p.grad is None for p in agent.encoder.parameters())
    features = set(ids(agent.method.actor_parameter_groups()))
    for part, network in agent.networks().items():
        for key, parameter in network.named_parameters():
            may_move = part == "actor" or id(parameter) in features
            assert torch.equal(parameter, before[part][key]) != may_move, f"{part}.{key}"


@every_method
def test_targets_stand_still_until_they_are_updated(name: str) -> None:
    config = make_config(name)
    agent, chunk = warmed_up(config), make_chunk(config, 9)
    frozen = {k: p for k, p in agent.method.named_parameters() if not p.requires_grad}
    before = {k: p.clone() for k, p in frozen.items()}
    encoded = agent.encoder(chunk.obs[:-1])
    c = encoded.detach().requires_grad_()
    c_next = agent.target_encoder(chunk.obs[1:])
    out = agent.method(Latents(c, c_next, chunk.action, chunk.reward), agent.generator)
    loss, _ = agent._critic_loss(chunk, c, c_next, chunk.reward, chunk.discount)
    agent._step(encoded, c, loss, out.loss)
    assert same(before, frozen)


@every_method
def test_metric_names_are_those_of_an_update_and_finding_them_changes_nothing(name: str) -> None:
    agent = warmed_up(make_config(name))
    before = copied(agent.method.state_dict()), agent.generator.get_state()
    names = agent.metric_names()
    assert same(before[0], agent.method.state_dict())
    assert torch.equal(before[1], agent.generator.get_state())
    assert names == list(agent.update(make_chunk(agent.config)))


@every_method
def test_state_round_trip(name: str) -> None:
    config = make_config(name)
    agent, other = warmed_up(config), make_agent(config, seed=9)
    other.load_state_dict(copied(agent.state_dict()))
    obs = make_chunk(config).obs[0].numpy()
    assert (agent.act(obs, None) == other.act(obs, None)).all()
    assert (agent.act(obs, seeded(4)) == other.act(obs, seeded(4))).all()
    for i in range(4):
        ours, theirs = (a.update(make_chunk(config, 20 + i)) for a in (agent, other))
        assert same(ours, theirs), [k for k in ours if not torch.equal(ours[k], theirs[k])]
    for part, network in agent.networks().items():
        assert same(network.state_dict(), other.networks()[part].state_dict()), part


@every_method
def test_a_method_is_what_its_state_dict_says(name: str) -> None:
    agent = warmed_up(make_config(name))
    twin = make_method(name, seed=7)
    twin.load_state_dict(copied(agent.method.state_dict()))
    x = make_latents(name)
    for _ in range(2):  # the second call sees what the first may have changed
        ours, theirs = (method(x, seeded(3)) for method in (agent.method, twin))
        assert torch.equal(ours.loss, theirs.loss) and torch.equal(ours.bonus, theirs.bonus)
        assert same(ours.metrics, theirs.metrics)


@every_method
def test_one_seed_gives_one_result(name: str) -> None:
    config = make_config(name)
    agents = [warmed_up(config, seed) for seed in (1, 1, 2)]
    torch.rand(1)  # the global generator must not matter
    first, again, other = (agent.update(make_chunk(config, 5)) for agent in agents)
    assert same(first, again)
    assert not same(first, other)


def critic_targets(agent: SAC, chunk: Chunk) -> Tensor:
    """The targets of the next update, its noise after the method's own drawn from one seed."""
    seen: list[Tensor] = []
    original = losses.critic_loss

    def spy(q1: Tensor, q2: Tensor, target: Tensor) -> Tensor:
        seen.append(target.clone())
        return original(q1, q2, target)

    hook = agent.method.register_forward_hook(lambda *_: agent.generator.manual_seed(7) and None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "critic_loss", spy)
        agent.update(chunk)
    hook.remove()
    return seen[0]


def plain_twin(agent: SAC) -> SAC:
    """Plain SAC with the encoder, the critic and the policy of ``agent``."""
    twin = make_agent(replace(agent.config, method="none", method_config=METHODS["none"].config()))
    for part in ("encoder", "target_encoder", "critic", "target_critic"):
        twin.networks()[part].load_state_dict(copied(agent.networks()[part].state_dict()))
    twin.actor = agent.actor
    twin.method.policy_features = agent.method.policy_features  # type: ignore[method-assign]
    twin.log_temperature = agent.log_temperature.detach().clone().requires_grad_()
    return twin


@pytest.mark.parametrize("name", WITH_BONUS)
def test_without_bonus_the_targets_are_those_of_plain_sac(name: str) -> None:
    field = METHODS[name].bonus_field
    assert field is not None and field in METHODS[name].config.__dataclass_fields__
    config = make_config(name)
    chunk = make_chunk(config, 9)
    for coefficient, equal in ((0.0, True), (10.0, False)):
        method_config = replace(config.method_config, **{field: coefficient})
        agent = warmed_up(replace(config, method_config=method_config))
        twin = plain_twin(agent)
        plain = critic_targets(twin, chunk)
        ours = critic_targets(agent, chunk)
        assert torch.equal(ours, plain) == equal, f"{field}={coefficient}"


@pytest.mark.parametrize("name", sorted(set(SAC_METHODS) - set(WITH_BONUS)))
def test_a_method_without_a_bonus_field_pays_nothing(name: str) -> None:
    assert not make_method(name)(make_latents(name), seeded()).bonus.any()


@every_method
def test_every_metric_is_documented(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "methods" / f"{name}.md"
    words = set(re.findall(r"`([^`\n]+)`", page.read_text()))
    with torch.no_grad():
        metrics = make_method(name)(make_latents(name), seeded()).metrics
    assert set(metrics) <= words, f"{page.name} lacks {sorted(set(metrics) - words)}"
    assert any(f"--method {name}" in word for word in words), "the command is missing"


@every_method
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid_and_survive_json(name: str, preset: str) -> None:
    config = preset_config(preset, method=name)
    check(config)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


@every_method
def test_config_is_frozen_and_every_field_has_its_help(name: str) -> None:
    cls = METHODS[name].config
    assert cls.__dataclass_params__.frozen and dataclasses.is_dataclass(cls())
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    body = definition.body
    for i, node in enumerate(body):
        if isinstance(node, ast.AnnAssign):
            assert isinstance(node.target, ast.Name)
            after = body[i + 1]
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            assert is_text, f"{cls.__name__}.{node.target.id} has no docstring"
