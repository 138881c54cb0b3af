"""One frame through all layers in bfloat16: each layer against double precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_frame_convolutions import CASES, Case, layers, seeded, threads  # noqa: F401
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv2d_input, conv2d_weight

from sibe.bench.workloads import _random_chunk
from sibe.catalogue.build import build_sac
from sibe.catalogue.presets import preset_config
from sibe.kernels import frame_convolutions, library
from sibe.kernels import half_convolutions as kernels
from sibe.kernels.frame_convolutions import Encoded
from sibe.nn.frame_convolutions import convolve_frames

compiled = pytest.mark.skipif(
    not kernels.available(), reason=f"no AVX512_BF16 here, or {library.find().reason}"
)


def rounded(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16).double()


def channels_first(y: Tensor) -> Tensor:
    return y.double().permute(0, 3, 1, 2)


def close(ours: Tensor, exact: Tensor, share: float) -> None:
    """Equal but for ``share`` of the largest."""
    atol = share * float(exact.abs().max()) + 1e-12
    torch.testing.assert_close(ours.double(), exact, atol=atol, rtol=0)


def encode(case: Case) -> tuple[Tensor, list[Tensor], tuple[int, ...], Encoded]:
    x, weights, biases, strides = layers(case)
    return x, weights, strides, kernels.convolve(x, weights, biases, strides, keep=True)


@compiled
@pytest.mark.parametrize("case", CASES)
def test_each_layer_is_the_convolution_of_the_one_before_rounded(case: Case) -> None:
    x, weights, biases, strides = layers(case)
    encoded = kernels.convolve(x, weights, biases, strides, keep=True)
    before = x.permute(0, 3, 1, 2).double()
    for i, y in enumerate(encoded.outputs):
        exact = F.relu(F.conv2d(before, rounded(weights[i]), biases[i].double(), strides[i]))
        last = i == len(weights) - 1
        assert y.dtype == (torch.float32 if last else torch.bfloat16)
        # Half a unit in the last of 8 bits, beside the rounding of float32 sums.
        rtol, atol = (0, 1e-5) if last else (2**-8, 1e-5)
        before = channels_first(y)
        scale = float(exact.abs().max())
        torch.testing.assert_close(before, exact, rtol=rtol, atol=atol * scale)
    assert torch.equal(encoded.maps, encoded.outputs[-2].float())
    assert torch.equal(encoded.peaks, encoded.outputs[-1].amax((1, 2)))
    dropped = kernels.convolve(x, weights, biases, strides, keep=False)
    assert torch.equal(dropped.maps, encoded.maps) and torch.equal(dropped.peaks, encoded.peaks)
    assert not dropped.outputs


def expected_gradients(
    x: Tensor,
    weights: list[Tensor],
    strides: tuple[int, ...],
    encoded: Encoded,
    of_maps: Tensor,
    of_peaks: Tensor,
) -> list[tuple[Tensor, Tensor]]:
    """Return the gradients of weight and bias of each layer, in doubles, of what was kept."""
    inputs = [x.permute(0, 3, 1, 2).double(), *(channels_first(y) for y in encoded.outputs[:-1])]
    outputs = [channels_first(y) for y in encoded.outputs]
    peaks = (outputs[-1] == outputs[-1].amax((2, 3), keepdim=True)) & (outputs[-1] > 0)
    g = peaks * (of_peaks.double() / peaks.sum((2, 3)).clamp(min=1))[..., None, None]
    gradients: list[tuple[Tensor, Tensor]] = []
    for i in reversed(range(len(weights))):
        weight, before, stride = rounded(weights[i]), inputs[i], strides[i]
        of_bias = g.sum((0, 2, 3))
        if 0 < i < len(weights) - 1:
            g = rounded(g)
        gradients.append((conv2d_weight(before, list(weight.shape), g, stride), of_bias))
        g = conv2d_input(list(before.shape), weight, g, stride)
        if i == len(weights) - 1:
            g = g + channels_first(of_maps)
        g = g * (before > 0)
    return gradients[::-1]


def check_gradients(
    x: Tensor, weights: list[Tensor], strides: tuple[int, ...], encoded: Encoded
) -> None:
    of_maps = torch.randn(encoded.maps.shape, generator=seeded(1))
    of_peaks = torch.randn(encoded.peaks.shape, generator=seeded(2))
    arguments = x, weights, strides, encoded, of_maps, of_peaks
    ours, again = kernels.gradients(*arguments), kernels.gradients(*arguments)
    for mine, same, exact in zip(ours, again, expected_gradients(*arguments), strict=True):
        for a, b, c in zip(mine, same, exact, strict=True):
            assert torch.equal(a, b)
            close(a, c, 2e-3)  # a gradient between two bfloat16 is rounded to either


@compiled
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_what_was_kept_rounded(case: Case) -> None:
    check_gradients(*encode(case))


@compiled
def test_places_with_equal_peaks_share_the_gradient() -> None:
    x, weights, biases, strides = layers(CASES[3])
    x[:] = x[:1, :1, :1]  # one color: every place has the peak
    check_gradients(x, weights, strides, kernels.convolve(x, weights, biases, strides, keep=True))


@compiled
def test_bytes_are_exact_and_what_is_not_a_number_passes() -> None:
    every = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1)
    pick = torch.zeros(16, 1, 3, 3)
    pick[:, :, 1, 1] = 1
    weights, biases = [pick, torch.zeros(16, 16, 3, 3)], [torch.zeros(16)] * 2
    seen = kernels.convolve(every, weights, biases, (1, 1), keep=False)
    assert torch.equal(seen.maps[..., 3], every[:, 1:-1, 1:-1, 0].float())
    pick[3, 0, 0, 0] = torch.nan
    assert kernels.convolve(every, weights, biases, (1, 1), keep=False).maps[..., 3].isnan().all()
    weights[1][5, 3] = 1
    assert kernels.convolve(every, weights, biases, (1, 1), keep=False).peaks[0, 5].isnan()


@compiled
def test_autocast_takes_them_and_rounds_no_more_than_pytorch() -> None:
    x, weights, biases, strides = layers(CASES[5])
    exact = [t.double() for t in convolve_frames(x, weights, biases, strides)]
    with torch.autocast("cpu", torch.bfloat16):
        ours = convolve_frames(x, weights, biases, strides)
    expected = kernels.convolve(x, weights, biases, strides, keep=False)
    assert torch.equal(ours[0], expected.maps) and torch.equal(ours[1], expected.peaks)
    with torch.autocast("cpu", torch.bfloat16), pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "available", lambda: False)
        pytorchs = convolve_frames(x, weights, biases, strides)
    for mine, theirs, right in zip(ours, pytorchs, exact, strict=True):
        assert (mine.double() - right).norm() < 1.1 * (theirs.double() - right).norm()
        close(mine, right, 0.02)


def losses_of_three_updates(autocast: bool) -> list[float]:
    config = preset_config("cpu", background="noise")
    config = replace(config, encoder=replace(config.encoder, autocast=autocast))
    agent = build_sac(config, 1, seeded(), torch.device("cpu"))
    chunk = _random_chunk(config, config.sac.batch)
    metrics = [agent.update(chunk) for _ in range(3)]
    assert all(p.dtype == torch.float32 for p in agent.encoder.parameters())
    return [float(step[name]) for step in metrics for name in agent.must_be_finite]


@compiled
def test_updates_of_the_cpu_preset_differ_by_rounding() -> None:
    exact, ours = losses_of_three_updates(False), losses_of_three_updates(True)
    assert ours != exact
    assert ours == pytest.approx(exact, rel=0.02, abs=0.02)


def test_a_processor_without_bfloat16_learns_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = losses_of_three_updates(False)
    monkeypatch.setattr(kernels, "available", lambda: False)
    assert losses_of_three_updates(True) == exact


def test_without_the_library_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_convolutions, "available", lambda: False)
    assert not kernels.available.__wrapped__()
