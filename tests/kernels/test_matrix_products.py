"""Matrix products by oneDNN: only where they are as precise as before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sibe.kernels import matrix_products


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = matrix_products.SETTING.fp32_precision
    matrix_products.available.cache_clear()
    yield
    matrix_products.SETTING.fp32_precision = before
    matrix_products.available.cache_clear()


@pytest.mark.parametrize("shape", [(1, 50, 256), (128, 52, 256), (640, 784, 50), (128, 256, 1)])
def test_products_and_gradients_are_those_of_double_precision(shape: tuple[int, int, int]) -> None:
    matrix_products.use_onednn()
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(1)
    x, weight, bias, of_output = (
        torch.randn(*size, generator=generator)
        for size in ((rows, inner), (columns, inner), (columns,), (rows, columns))
    )
    results = []
    for dtype in (torch.float32, torch.float64):
        a, w, b = (part.detach().to(dtype, copy=True) for part in (x, weight, bias))
        for part in (a, w, b):
            part.requires_grad_()
        y = torch.nn.functional.linear(a, w, b)
        y.backward(of_output.to(dtype))
        assert a.grad is not None and w.grad is not None and b.grad is not None
        results.append([part.double() for part in (y, a.grad, w.grad, b.grad)])
    for ours, exact in zip(*results, strict=True):
        largest = float(exact.detach().abs().max())
        torch.testing.assert_close(ours, exact, rtol=0, atol=1e-5 * largest)


def test_it_is_left_alone_where_precision_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIBE_KERNELS", raising=False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(matrix_products, "_is_amd_without_amx", lambda: True)
    monkeypatch.setattr(matrix_products, "_as_precise_as_float32", lambda: False)
    before = matrix_products.SETTING.fp32_precision
    matrix_products.use_onednn()
    assert matrix_products.SETTING.fp32_precision == before
    matrix_products.available.cache_clear()
    monkeypatch.setattr(matrix_products, "_as_precise_as_float32", lambda: True)
    matrix_products.use_onednn()
    assert matrix_products.SETTING.fp32_precision == "bf16"


@pytest.mark.parametrize("reason", ["kernels off", "AVX2", "Intel"])
def test_where_it_is_not_used(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIBE_KERNELS", "0" if reason == "kernels off" else "1")
    capability = "AVX2" if reason == "AVX2" else "AVX512"
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(matrix_products, "_is_amd_without_amx", lambda: reason != "Intel")
    monkeypatch.setattr(matrix_products, "_as_precise_as_float32", lambda: True)
    assert not matrix_products.available()


def test_looking_changes_nothing() -> None:
    before = matrix_products.SETTING.fp32_precision
    matrix_products.available()
    assert matrix_products.SETTING.fp32_precision == before
