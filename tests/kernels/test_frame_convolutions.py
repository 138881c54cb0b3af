"""One frame through all layers, against PyTorch's double-precision layers and its autograd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sibe.bench.workloads import _random_chunk
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.kernels import frame_convolutions as kernels
from sibe.kernels import half_convolutions, library
from sibe.nn.frame_convolutions import _Convolutions, convolve_frames

compiled = pytest.mark.skipif(
    library.library() is None, reason=f"nothing to compare: {library.find().reason}"
)
# Rows of every width up to 12 and beyond, blocks of filters, strides, more threads than frames.
CASES = [
    # frames, height, width, channels, strides, filters, threads
    (1, 5, 5, 3, (1, 1), (16, 16), 3),
    (3, 9, 7, 1, (1, 1), (16, 48), 2),
    (2, 8, 17, 3, (1, 1), (32, 16), 1),
    (4, 21, 30, 3, (2, 1, 1), (16, 32, 32), 2),
    (5, 42, 42, 3, (2, 2, 1, 1), (16, 16, 16, 32), 2),
    (3, 84, 84, 3, (2, 2, 2, 1, 1), (16, 16, 16, 16, 32), 2),
    (2, 31, 47, 9, (3, 1, 2), (16, 16, 16), 1),
]
Case = tuple[int, int, int, int, tuple[int, ...], tuple[int, ...], int]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def layers(case: Case) -> tuple[Tensor, list[Tensor], list[Tensor], tuple[int, ...]]:
    frames, height, width, channels, strides, filters, threads = case
    torch.set_num_threads(threads)
    x = torch.randint(0, 256, (frames, height, width, channels), generator=seeded())
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    for number, before in zip(filters, (channels, *filters), strict=False):
        scale = (255 if not weights else 1) * (9 * before) ** 0.5
        weights.append(torch.randn(number, before, 3, 3, generator=seeded(before)) / scale)
        biases.append(torch.randn(number, generator=seeded(number)) / 10)
    return x.to(torch.uint8), weights, biases, strides


def in_doubles(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], strides: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    maps = [x.permute(0, 3, 1, 2).double()]
    for weight, bias, stride in zip(weights, biases, strides, strict=True):
        maps.append(F.relu(F.conv2d(maps[-1], weight, bias, stride)))
    return maps[-2].permute(0, 2, 3, 1), maps[-1].amax((2, 3))


def close(ours: Tensor, exact: Tensor) -> None:
    """Equal but for the rounding of float32 sums: 1e-5 of the largest."""
    atol = 1e-5 * float(exact.detach().abs().max())
    torch.testing.assert_close(ours, exact.float(), atol=atol, rtol=0)


def check_against_doubles(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], strides: tuple[int, ...]
) -> None:
    exact = [tensor.double().requires_grad_() for tensor in (*weights, *biases)]
    number = len(weights)
    maps, peaks = in_doubles(x, exact[:number], exact[number:], strides)
    of_maps = torch.randn(maps.shape, generator=seeded(1))
    of_peaks = torch.randn(peaks.shape, generator=seeded(2))
    expected = torch.autograd.grad((maps, peaks), exact, (of_maps.double(), of_peaks.double()))

    encoded = kernels.convolve(x, weights, biases, strides, keep=True)
    close(encoded.maps, maps)
    close(encoded.peaks, peaks)
    dropped = kernels.convolve(x, weights, biases, strides, keep=False)
    assert torch.equal(dropped.maps, encoded.maps)
    assert torch.equal(dropped.peaks, encoded.peaks)
    ours = kernels.gradients(x, weights, strides, encoded, of_maps, of_peaks)
    again = kernels.gradients(x, weights, strides, encoded, of_maps, of_peaks)
    for layer, (weight, bias) in enumerate(ours):
        close(weight, expected[layer])
        close(bias, expected[number + layer])
        assert torch.equal(weight, again[layer][0])
        assert torch.equal(bias, again[layer][1])


@compiled
@pytest.mark.parametrize("case", CASES)
def test_maps_peaks_and_gradients_are_pytorchs_in_doubles(case: Case) -> None:
    check_against_doubles(*layers(case))


@compiled
def test_places_with_equal_peaks_share_the_gradient_as_in_pytorch() -> None:
    x, weights, biases, strides = layers(CASES[3])
    x[:, :, :, :] = x[:1, :1, :1]  # one color: every place has the peak
    check_against_doubles(x, weights, biases, strides)


@compiled
def test_a_pooled_filter_that_is_never_active_gets_no_gradient() -> None:
    x, weights, biases, strides = layers(CASES[3])
    biases[-1][5] = -1e3
    check_against_doubles(x, weights, biases, strides)


@compiled
def test_what_is_not_a_number_reaches_maps_and_peaks() -> None:
    x, weights, biases, strides = layers(CASES[4])
    weights[0][3, 0, 0, 0] = torch.nan
    encoded = kernels.convolve(x, weights, biases, strides, keep=False)
    assert encoded.maps.isnan().all()
    assert encoded.peaks.isnan().all()


@compiled
@pytest.mark.parametrize("why", ["floats", "8 filters", "transposed", "autocast", "double"])
def test_what_the_kernels_cannot_do_is_left_to_pytorch(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weights, biases, strides = layers(CASES[4])
    if why == "floats":
        x = x.float()
    elif why == "8 filters":
        weights[-1], biases[-1] = weights[-1][:8], biases[-1][:8]
    elif why == "transposed":
        x = x.transpose(1, 2)
    elif why == "double":
        weights, biases = [w.double() for w in weights], [b.double() for b in biases]
    monkeypatch.setattr(kernels, "available", lambda: True)
    monkeypatch.setattr(kernels, "convolve", None)  # not to be called
    monkeypatch.setattr(half_convolutions, "available", lambda: False)
    with torch.autocast("cpu", torch.bfloat16, enabled=why == "autocast"):
        maps, peaks = convolve_frames(x, weights, biases, strides)
    exact = in_doubles(x, [w.double() for w in weights], [b.double() for b in biases], strides)
    tolerance = 0.05 if why == "autocast" else 1e-4
    for ours, other in zip((maps, peaks), exact, strict=True):
        torch.testing.assert_close(ours.double(), other, atol=tolerance, rtol=tolerance)


@compiled
@pytest.mark.parametrize("shape", [(2, 42, 42, 4), (2, 6, 42, 3)])
def test_sizes_that_do_not_fit_are_refused_as_by_pytorch(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "available", lambda: True)
    _, weights, biases, strides = layers(CASES[4])
    with pytest.raises(RuntimeError, match=r"channels|size"):
        convolve_frames(torch.zeros(shape, dtype=torch.uint8), weights, biases, strides)


@compiled
def test_updates_of_the_cpu_preset_are_those_without_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = preset_config("cpu", background="noise")
    chunk = _random_chunk(config, config.sac.batch)
    calls: list[int] = []
    forward = _Convolutions.forward

    def counted(*args: object) -> object:
        calls.append(1)
        return forward(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(_Convolutions, "forward", staticmethod(counted))

    def losses(on: bool) -> list[float]:
        monkeypatch.setattr(kernels, "available", lambda: on)
        agent = build_sac(config, 1, seeded(), torch.device("cpu"))
        metrics = [agent.update(chunk) for _ in range(3)]
        return [float(step[name]) for step in metrics for name in agent.must_be_finite]

    without = losses(False)
    assert not calls
    assert losses(True) == pytest.approx(without, rel=1e-4)
    assert len(calls) == 3
