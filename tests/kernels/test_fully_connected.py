"""Whole networks in one call, against PyTorch's layers in double precision and its autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sibe.agents.sac.networks import TwinQ
from sibe.kernels import fully_connected as kernels
from sibe.kernels import library
from sibe.nn.fully_connected import _Networks, connect, kernels_help
from sibe.nn.mlp import MLP, mlp

compiled = pytest.mark.skipif(
    library.library() is None, reason=f"nothing to compare: {library.find().reason}"
)
CASES = [
    # samples, sizes, networks, threads: whole panels and broken ones, rows of every number up to 12
    (32, (3, 1), 1, 1),
    (33, (1, 7, 2), 1, 2),
    (70, (7, 33, 5), 3, 2),
    (128, (51, 256, 256, 1), 2, 2),
    (128, (50, 256, 100), 1, 1),
    (40, (11, 10, 9, 8, 4), 2, 3),
    (257, (246, 128, 50), 1, 2),
]
Case = tuple[int, tuple[int, ...], int, int]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def close(ours: Tensor, exact: Tensor) -> None:
    """Equal but for the rounding of float32 sums: 1e-5 of the largest."""
    atol = 1e-5 * float(exact.detach().abs().max())
    torch.testing.assert_close(ours, exact.float(), atol=atol, rtol=0)


def made(case: Case) -> tuple[Tensor, list[MLP]]:
    samples, sizes, networks, threads = case
    torch.set_num_threads(threads)
    nets = [mlp(sizes, generator=seeded(i)) for i in range(networks)]
    for net in nets:
        for layer in net.linears:
            nn.init.normal_(layer.bias, std=0.1, generator=seeded(7))
    return torch.randn(samples, sizes[0], generator=seeded()), nets


def parameters(nets: list[MLP]) -> tuple[list[Tensor], list[Tensor]]:
    layers = [layer for net in nets for layer in net.linears]
    return [layer.weight.detach() for layer in layers], [layer.bias.detach() for layer in layers]


@compiled
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_pytorchs_in_doubles(case: Case) -> None:
    x, nets = made(case)
    weights, biases = parameters(nets)
    y, kept = kernels.forward(x, weights, biases, len(nets))
    g = torch.randn(y.shape, generator=seeded(1))
    ours = kernels.gradients(g, kept, weights, of_weights=True, of_input=True)

    doubles = [net.double() for net in nets]
    exact_x = x.double().requires_grad_()
    exact = torch.stack([net(exact_x) for net in doubles])
    exact.backward(g.double())
    close(y, exact)
    assert ours.of_input is not None and exact_x.grad is not None
    close(ours.of_input, exact_x.grad)
    layers = [layer for net in doubles for layer in net.linears]
    for layer, weight, bias in zip(layers, ours.of_weights, ours.of_biases, strict=True):
        assert layer.weight.grad is not None and layer.bias.grad is not None
        close(weight, layer.weight.grad)
        close(bias, layer.bias.grad)


@compiled
def test_nothing_depends_on_the_number_of_threads() -> None:
    x, nets = made(CASES[3])
    weights, biases = parameters(nets)

    def computed(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        y, kept = kernels.forward(x, weights, biases, len(nets))
        found = kernels.gradients(y, kept, weights, of_weights=True, of_input=True)
        assert found.of_input is not None
        return [y, found.of_input, *found.of_weights, *found.of_biases]

    one, three = computed(1), computed(3)
    assert all(torch.equal(a, b) for a, b in zip(one, three, strict=True))


@compiled
@pytest.mark.parametrize(("of_weights", "of_input"), [(True, False), (False, True)])
def test_only_what_is_asked_for_is_computed(of_weights: bool, of_input: bool) -> None:
    x, nets = made(CASES[2])
    weights, biases = parameters(nets)
    y, kept = kernels.forward(x, weights, biases, len(nets))
    some = kernels.gradients(y, kept, weights, of_weights=of_weights, of_input=of_input)
    whole = kernels.gradients(y, kept, weights, of_weights=True, of_input=True)
    assert len(some.of_weights) == len(some.of_biases) == (len(weights) if of_weights else 0)
    for a, b in zip(some.of_weights, whole.of_weights, strict=False):
        assert torch.equal(a, b)
    assert (some.of_input is not None) == of_input
    if some.of_input is not None and whole.of_input is not None:
        assert torch.equal(some.of_input, whole.of_input)


@compiled
def test_what_is_not_a_number_reaches_the_output() -> None:
    x, nets = made(CASES[3])
    weights, biases = parameters(nets)
    x[5, 0] = torch.nan
    y, _ = kernels.forward(x, weights, biases, len(nets))
    assert y[:, 5].isnan().all()
    assert not y[:, 6].isnan().any()


def _both(monkeypatch: pytest.MonkeyPatch, module: nn.Module, *inputs: Tensor) -> None:
    """Check output and gradients of a module with kernels against those without."""
    results = []
    for on in (True, False):
        monkeypatch.setattr(kernels, "available", lambda on=on: on)
        module.zero_grad()
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = module(*leaves)
        outs = out if isinstance(out, tuple) else (out,)
        sum((y * torch.randn(y.shape, generator=seeded(3))).sum() for y in outs).backward()
        grads = [p.grad for p in (*module.parameters(), *leaves)]
        results.append([*outs, *(g for g in grads if g is not None)])
    assert len(results[0]) == len(results[1])
    for ours, plain in zip(*results, strict=True):
        close(ours, plain.double())


@compiled
def test_modules_are_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    x, action = torch.randn(2, 20, 6, generator=seeded()), torch.randn(2, 20, 2)
    normed = mlp((6, 24, 10), layer_norm=True, generator=seeded())
    _both(monkeypatch, normed, x)
    _both(monkeypatch, normed[:2], x)  # a slice that ends in a ReLU
    _both(monkeypatch, TwinQ(6, 2, 24, generator=seeded()), x, action)


@compiled
def test_gradients_reach_an_input_through_frozen_networks() -> None:
    torch.manual_seed(0)
    critic = TwinQ(6, 2, 24, generator=seeded()).requires_grad_(False)
    action = torch.zeros(40, 2, requires_grad=True)
    q1, _ = critic(torch.randn(40, 6), action)
    q1.sum().backward()
    assert action.grad is not None and action.grad.abs().sum() > 0
    assert all(p.grad is None for p in critic.parameters())


@compiled
@pytest.mark.parametrize("why", ["few", "double", "wide", "autocast", "one layer", "vector"])
def test_what_the_kernels_cannot_do_is_left_to_pytorch(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, net = torch.randn(64, 6), mlp((6, 24, 4), generator=seeded())
    if why == "few":
        x = x[:31]
    elif why == "double":
        x, net = x.double(), net.double()
    elif why == "wide":
        net = mlp((6, 513, 4))
    elif why == "one layer":
        net = mlp((6, 4))
    elif why == "vector":
        x = x[0]
    monkeypatch.setattr(kernels, "forward", None)  # not to be called
    with torch.autocast("cpu", torch.bfloat16, enabled=why == "autocast"):
        assert net(x).shape[-1] == 4


@compiled
def test_the_function_is_what_autograd_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, forward = [], _Networks.forward

    def counted(*args: Any) -> Any:
        calls.append(1)
        return forward(*args)

    monkeypatch.setattr(_Networks, "forward", staticmethod(counted))
    net = mlp((6, 24, 4))
    x = torch.randn(64, 6)
    assert kernels_help(x, net.linears)
    net(x)
    with torch.no_grad():
        assert connect(x, net.linears, net.linears).shape == (2, 64, 4)
    assert len(calls) == 1
