"""Adam and the EMA for all parameters in one call, against PyTorch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sibe.kernels import library, parameters
from sibe.nn.adam import Adam
from sibe.nn.ema import frozen_copy, update_ema

compiled = pytest.mark.skipif(
    library.library() is None, reason=f"nothing to compare: {library.find().reason}"
)


def network() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(5, 7), nn.LayerNorm(7))
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def set_gradients(net: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for i, p in enumerate(net.parameters()):
        p.grad = torch.randn(p.shape, generator=generator).mul(10.0 ** (i - 3)).to(p)
        p.grad = torch.empty_like(p).copy_(p.grad)  # in the layout of the parameter


def adam_of(net: nn.Module, kind: type[torch.optim.Adam] = Adam) -> torch.optim.Adam:
    groups: list[dict[str, Any]] = [
        {"params": list(net[0].parameters()), "lr": 1e-2},  # type: ignore[index]
        {"params": [*net[2].parameters(), *net[3].parameters()]},  # type: ignore[index]
    ]
    return kind(groups, lr=1e-3, betas=(0.5, 0.999), fused=True)


@compiled
def test_adam_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, plain = network(), network()
    our_adam, plain_adam = adam_of(ours), adam_of(plain, torch.optim.Adam)
    calls, kernel = [], parameters.adam

    def counted(*args: Any, **options: Any) -> None:
        calls.append(1)
        kernel(*args, **options)

    monkeypatch.setattr(parameters, "adam", counted)
    for step in range(50):
        set_gradients(ours, step)
        set_gradients(plain, step)
        our_adam.step()
        plain_adam.step()
    assert len(calls) == 2 * 49  # PyTorch's own first step makes the states
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    for a, b in zip(our_adam.state.values(), plain_adam.state.values(), strict=True):
        assert a["step"] == b["step"] == 50
        for name in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(a[name], b[name], rtol=1e-5, atol=1e-9)


@compiled
@pytest.mark.parametrize("why", ["double", "layout", "decay", "off"])
def test_what_the_kernel_cannot_do_is_left_to_pytorch(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network().double() if why == "double" else network()
    adam = adam_of(net)
    set_gradients(net, 0)
    adam.step()
    set_gradients(net, 1)
    if why == "layout":
        weight = net.get_parameter("0.weight")
        assert weight.grad is not None
        weight.grad = weight.grad.contiguous()
    if why == "decay":
        adam.param_groups[1]["weight_decay"] = 0.1
    monkeypatch.setattr(parameters, "adam", None)  # not to be called
    if why == "off":
        monkeypatch.setattr(parameters, "library", lambda: None)
    before = [p.detach().clone() for p in net.parameters()]
    adam.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


def test_parameters_without_gradient_stay() -> None:
    net = network()
    adam = adam_of(net)
    for step in range(3):
        set_gradients(net, step)
        net.get_parameter("2.bias").grad = None
        adam.step()
    assert torch.equal(net.get_parameter("2.bias"), network().get_parameter("2.bias"))


@compiled
def test_the_ema_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(on: bool) -> list[Tensor]:
        online, target = network(), frozen_copy(network())
        set_gradients(online, 0)
        for p in online.parameters():
            assert p.grad is not None
            p.data += p.grad
        with monkeypatch.context() as patch:
            if not on:
                patch.setattr(parameters, "library", lambda: None)
                patch.setattr(parameters, "lerp", None)  # not to be called
            for _ in range(20):
                update_ema(target, online, 0.05)
        return [p.detach() for p in target.parameters()]

    for a, b in zip(moved(True), moved(False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
