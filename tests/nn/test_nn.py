"""The networks, each against a formulation written another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from method_inputs import seeded
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TransformedDistribution, kl_divergence
from torch.distributions.transforms import TanhTransform
from torch.nn import functional as F

from sibe.errors import UserError
from sibe.nn.contrastive import Bilinear, infonce
from sibe.nn.ema import frozen_copy, update_ema
from sibe.nn.encoder import Encoder, conv_size
from sibe.nn.gaussian import (
    Gaussian,
    GaussianHead,
    bounded_log_std,
    kl,
    soft_log_std,
    squashed_sample,
    standard_normal,
)
from sibe.nn.init import orthogonal_
from sibe.nn.mlp import mlp


def images(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=seeded(1))


# --- initialization -------------------------------------------------------------------------


@pytest.mark.parametrize(("fan_in", "fan_out"), [(9, 32), (32, 32), (40, 32)])
def test_convolutions_start_delta_orthogonal(fan_in: int, fan_out: int) -> None:
    conv = nn.Conv2d(fan_in, fan_out, 3)
    orthogonal_(conv, seeded())
    taps = conv.weight.detach().clone()
    center = taps[:, :, 1, 1].clone()
    taps[:, :, 1, 1] = 0
    assert not taps.any()
    gram = center @ center.T if fan_out <= fan_in else center.T @ center
    torch.testing.assert_close(gram, 2 * torch.eye(len(gram)), atol=1e-5, rtol=0)
    assert conv.bias is not None and not conv.bias.any()


def test_a_smooth_start_passes_constants_alike_and_averages_noise() -> None:
    delta, smooth = nn.Conv2d(9, 16, 3), nn.Conv2d(9, 16, 3)
    orthogonal_(delta, seeded())
    orthogonal_(smooth, seeded(), smooth=True)
    flat = torch.rand(1, 9, 1, 1, generator=seeded(1)).expand(1, 9, 5, 5)
    torch.testing.assert_close(smooth(flat), delta(flat))
    noise = torch.randn(64, 9, 20, 20, generator=seeded(2))
    # Σ w² of (1 2 1)/4 in each direction is 3/8: noise keeps (3/8)² of its power.
    with torch.no_grad():
        ratio = smooth(noise).var() / delta(noise).var()
    assert float(ratio) == pytest.approx((3 / 8) ** 2, rel=0.03)


def test_centered_pixels_equal_subtracting_half_before_the_first_convolution() -> None:
    plain, centered = (Encoder(20, 9, generator=seeded(), center=c) for c in (False, True))
    pixels = torch.randint(0, 256, (4, 20, 20, 9), generator=seeded(1), dtype=torch.uint8)
    torch.testing.assert_close(
        centered(pixels), plain(pixels.float() - 127.5), atol=1e-5, rtol=1e-4
    )


def test_chroma_equals_color_differences_before_the_first_convolution() -> None:
    encoder = Encoder(20, 6, generator=seeded(), chroma=True, center=True).double()
    pixels = images(4, 20, 20, 6)
    r, g, b = pixels.double().unflatten(-1, (2, 3)).unbind(-1)  # two frames: [N, H, W, 2] each
    differences = torch.stack((2 * (r - b), 2 * g - r - b), -1).flatten(-2) / 255
    maps = F.conv2d(differences.permute(0, 3, 1, 2), encoder.first.weight, encoder.first.bias, 2)
    maps = encoder.rest(maps.relu()).permute(0, 2, 3, 1).flatten(1)
    torch.testing.assert_close(encoder(pixels), encoder.norm(encoder.project(maps)))


def test_chroma_does_not_see_gray() -> None:
    encoder = Encoder(20, 3, generator=seeded(), chroma=True).double()
    pixels, gray = images(4, 20, 20, 3), images(4, 20, 20, 1).expand(-1, -1, -1, 3)
    blank = torch.zeros(1, 20, 20, 3, dtype=torch.uint8)
    torch.testing.assert_close(encoder(gray), encoder(blank).expand(4, -1), atol=1e-9, rtol=0)
    assert not torch.allclose(encoder(pixels), encoder(blank).expand(4, -1))


def test_linear_layers_start_orthogonal_wherever_they_are_nested() -> None:
    network = nn.Sequential(nn.Linear(7, 12), nn.Sequential(nn.Linear(12, 5, bias=False)))
    orthogonal_(network, seeded())
    for name, weight in network.named_parameters():
        if name.endswith("bias"):
            assert not weight.any()
        else:
            gram = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
            torch.testing.assert_close(gram, torch.eye(len(gram)), atol=1e-5, rtol=0)


def test_the_generator_alone_decides_the_weights() -> None:
    first = Encoder(16, 3, generator=seeded(3)).state_dict()
    torch.randn(5)
    second = Encoder(16, 3, generator=seeded(3)).state_dict()
    other = Encoder(16, 3, generator=seeded(4)).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["project.weight"], other["project.weight"])


# --- encoder --------------------------------------------------------------------------------


def plain_encoder(encoder: Encoder, pixels: Tensor) -> Tensor:
    """The textbook formulation: NCHW, pixels / 255, channels-first flattening."""
    convs = [encoder.first] + [layer for layer in encoder.rest if isinstance(layer, nn.Conv2d)]
    maps = pixels.permute(0, 3, 1, 2).contiguous().to(encoder.project.weight.dtype) / 255
    for conv in convs:
        maps = F.relu(F.conv2d(maps, conv.weight, conv.bias, conv.stride))
    _, filters, height, width = maps.shape
    weight = encoder.project.weight.view(-1, height, width, filters).permute(0, 3, 1, 2)
    c = F.linear(maps.flatten(1), weight.flatten(1), encoder.project.bias)
    c = F.layer_norm(c, c.shape[-1:], encoder.norm.weight, encoder.norm.bias)
    return c.tanh() if encoder.tanh else c


def scrambled(module: nn.Module) -> None:
    """Move every parameter away from its special initial value."""
    generator = seeded(7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)


@pytest.mark.parametrize("size", [23, (24, 31)])
@pytest.mark.parametrize("strides", [(2, 1, 1, 1), (1, 1, 1, 1), (2, 2, 1, 1)])
@pytest.mark.parametrize(("channels", "tanh"), [(9, False), (1, True)])
def test_encoder_equals_the_textbook_formulation(
    size: int | tuple[int, int], strides: tuple[int, ...], channels: int, tanh: bool
) -> None:
    height, width = (size, size) if isinstance(size, int) else size
    encoder = Encoder(size, channels, features=7, filters=8, strides=strides, tanh=tanh)
    scrambled(encoder)
    pixels = images(6, height, width, channels)
    # float32: the two differ by rounding only, 1e-4 on LayerNorm's unit scale.
    torch.testing.assert_close(encoder(pixels), plain_encoder(encoder, pixels), atol=1e-4, rtol=0)
    encoder.double()
    ours, theirs = encoder(pixels), plain_encoder(encoder, pixels)
    torch.testing.assert_close(ours, theirs, atol=1e-11, rtol=0)
    probe = torch.randn(ours.shape, dtype=ours.dtype, generator=seeded())
    ours_grad = torch.autograd.grad((ours * probe).sum(), list(encoder.parameters()))
    theirs_grad = torch.autograd.grad((theirs * probe).sum(), list(encoder.parameters()))
    for mine, other in zip(ours_grad, theirs_grad, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("leading", [(), (1,), (5,), (2, 3), (1, 2, 2)])
def test_encoder_keeps_any_leading_dimensions(leading: tuple[int, ...]) -> None:
    encoder = Encoder(16, 3, features=5, generator=seeded())
    pixels = images(*leading, 16, 16, 3)
    c = encoder(pixels)
    assert c.shape == (*leading, 5)
    flat = encoder(pixels.reshape(-1, 16, 16, 3))
    torch.testing.assert_close(c.reshape(-1, 5), flat)


def test_encoder_does_not_change_its_input_and_stays_channels_last() -> None:
    encoder = Encoder(16, 3)
    pixels = images(4, 16, 16, 3)
    before = pixels.clone()
    seen: list[Tensor] = []
    encoder.rest.register_forward_hook(lambda module, args, output: seen.append(output))
    encoder(pixels)
    assert torch.equal(pixels, before)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_paper_sizes() -> None:
    assert conv_size(84, (2, 1, 1, 1)) == (35, 35)
    assert conv_size((84, 100), (1, 1, 1, 1)) == (76, 92)
    assert Encoder(84, 9).project.in_features == 39_200


@given(st.integers(1, 40), st.integers(1, 40), st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_conv_size_is_what_torch_makes_or_an_error(
    height: int, width: int, strides: list[int]
) -> None:
    maps = torch.zeros(1, 1, height, width)
    try:
        for stride in strides:
            maps = F.conv2d(maps, torch.zeros(1, 1, 3, 3), stride=stride)
    except RuntimeError:
        with pytest.raises(UserError, match=f"{height}×{width} is too small"):
            conv_size((height, width), strides)
    else:
        assert conv_size((height, width), strides) == maps.shape[2:]


def test_too_small_an_image_is_the_users_error() -> None:
    with pytest.raises(UserError, match="larger image"):
        Encoder(10, 3)


# --- mlp ------------------------------------------------------------------------------------


def test_mlp_is_linear_relu_linear() -> None:
    network = mlp((3, 8, 2), layer_norm=True)
    scrambled(network)
    w1, b1, w2, b2, scale, shift = (p.detach().double().numpy() for p in network.parameters())
    x = torch.randn(4, 3, generator=seeded())
    y = np.maximum(x.double().numpy() @ w1.T + b1, 0) @ w2.T + b2
    y = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5) * scale + shift
    np.testing.assert_allclose(network(x).detach().numpy(), y, atol=1e-4)
    assert [type(layer) for layer in mlp((3, 2))] == [nn.Linear]


# --- Gaussians ------------------------------------------------------------------------------


def random_gaussian(seed: int, scale: float = 1.0) -> Gaussian:
    mean, log_std = torch.randn(2, 3, 4, 5, generator=seeded(seed), dtype=torch.float64) * scale
    return Gaussian(mean, log_std)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_kl_equals_torch_distributions(scale: float) -> None:
    p, q = random_gaussian(1, scale), random_gaussian(2, scale)
    expected = kl_divergence(Normal(p.mean, p.std), Normal(q.mean, q.std))
    torch.testing.assert_close(kl(p, q), expected, rtol=1e-9, atol=1e-12)
    assert (kl(p, q) >= 0).all()
    assert not kl(p, p).any()


def test_kl_of_nearly_equal_gaussians_survives_float32() -> None:
    # KL(N(0, e^{2d}) ‖ N(0, 1)) = d² + O(d³): here 1e-6, where float32 near 1 has steps of 1e-7.
    p = Gaussian(torch.zeros(1), torch.full((1,), 1e-3))
    assert kl(p, Gaussian(torch.zeros(1), torch.zeros(1))).item() == pytest.approx(1e-6, rel=0.1)


def test_samples_have_the_moments_and_carry_the_gradient() -> None:
    mean = torch.tensor([1.0, -2.0], requires_grad=True)
    log_std = torch.tensor([0.5, -1.0], requires_grad=True)
    wide = Gaussian(mean.expand(100_000, 2), log_std.expand(100_000, 2)).sample(seeded())
    torch.testing.assert_close(wide.mean(0), mean, atol=0.03, rtol=0)
    torch.testing.assert_close(wide.std(0), log_std.exp(), atol=0.03, rtol=0)
    sample = Gaussian(mean, log_std).sample(seeded(5))
    by_mean, by_log_std = torch.autograd.grad(sample.sum(), (mean, log_std))
    torch.testing.assert_close(by_mean, torch.ones(2))
    torch.testing.assert_close(by_log_std, (sample - mean).detach())


def test_noise_belongs_to_the_generator() -> None:
    like = torch.zeros(3, 4, dtype=torch.float64)
    assert torch.equal(standard_normal(like, seeded(1)), standard_normal(like, seeded(1)))
    assert not torch.equal(standard_normal(like, seeded(1)), standard_normal(like, seeded(2)))
    assert standard_normal(like, None).dtype == torch.float64
    assert standard_normal(torch.zeros(2, device="meta"), seeded()).device.type == "meta"


def test_soft_log_std_is_the_identity_at_zero_smooth_and_bounded() -> None:
    raw = torch.linspace(-200, 200, 40_001, dtype=torch.float64, requires_grad=True)
    bounded = soft_log_std(raw)
    (slope,) = torch.autograd.grad(bounded.sum(), raw)
    assert bounded.min() >= -10 and bounded.max() <= 2
    assert (bounded.diff() >= 0).all() and (slope >= 0).all() and (slope <= 1).all()
    assert slope.diff().abs().max() < 0.01  # no kink at 0 on a grid of 0.01
    small = torch.linspace(-0.1, 0.1, 101)
    torch.testing.assert_close(soft_log_std(small), small, atol=1e-4, rtol=0)


@pytest.mark.parametrize("layer_norm", [True, False])
def test_a_fresh_head_has_unit_scale(layer_norm: bool) -> None:
    head = GaussianHead((50, 256, 50), layer_norm=layer_norm, generator=seeded())
    x = torch.randn(64, 50, generator=seeded(1))
    out = head(x)
    assert out.mean.shape == out.log_std.shape == (64, 50)
    assert abs(out.log_std.mean()) < 0.5
    if layer_norm:
        # Normalized together before the split; the bound leaves the mean half untouched.
        joined = head.network[:-1](x)
        expected = F.layer_norm(joined, (100,))
        torch.testing.assert_close(out.mean, expected[:, :50])
        torch.testing.assert_close(out.log_std, soft_log_std(expected[:, 50:]))


def test_actor_log_std_is_mapped_onto_its_range() -> None:
    raw = torch.tensor([-50.0, 0.0, math.atanh(0.5), 50.0])
    torch.testing.assert_close(bounded_log_std(raw), torch.tensor([-10.0, -4.0, -1.0, 2.0]))


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-0.3, 0.7), (0.0, -3.0)])
def test_squashed_density_integrates_to_one(mean: float, log_std: float) -> None:
    noise = torch.linspace(-12, 12, 200_001, dtype=torch.float64)[:, None]
    location = torch.full_like(noise, mean)
    action, log_prob = squashed_sample(location, torch.full_like(noise, log_std), noise)
    assert log_prob.shape == (200_001,)
    assert torch.trapezoid(log_prob.exp(), action[:, 0]).item() == pytest.approx(1, abs=1e-4)


def test_squashed_log_prob_equals_torch_transformed_distribution() -> None:
    generator = seeded(2)
    mean, log_std, noise = torch.randn(3, 6, 4, 3, generator=generator, dtype=torch.float64)
    action, log_prob = squashed_sample(mean, log_std, noise)
    base = Independent(Normal(mean, log_std.exp()), 1)
    expected: Tensor = TransformedDistribution(base, [TanhTransform()]).log_prob(action)
    # torch has to invert the tanh, which costs digits near ±1.
    torch.testing.assert_close(log_prob, expected, rtol=1e-5, atol=1e-5)


def test_squashed_log_prob_is_finite_where_tanh_saturates() -> None:
    mean = torch.tensor([[300.0], [-300.0]], requires_grad=True)
    action, log_prob = squashed_sample(mean, torch.zeros(2, 1), torch.zeros(2, 1))
    assert action.abs().max() == 1
    # log(1 - tanh²u) -> 2 log 2 - 2|u|
    expected = -0.5 * math.log(2 * math.pi) - (2 * math.log(2) - 600)
    torch.testing.assert_close(log_prob, torch.full((2,), expected))
    (slope,) = torch.autograd.grad(log_prob.sum(), mean)
    torch.testing.assert_close(slope, torch.tensor([[2.0], [-2.0]]))


# --- contrastive ----------------------------------------------------------------------------


def brute_infonce(scores: np.ndarray) -> list[float]:
    """The sum of the equation, written out."""
    losses = []
    for i in range(len(scores)):
        total = 0.0
        for j in range(len(scores)):
            total += math.exp(scores[i, j])
        losses.append(-math.log(math.exp(scores[i, i]) / total))
    return losses


def test_scores_and_infonce_equal_the_written_out_sums() -> None:
    bilinear = Bilinear(4, generator=seeded()).double()
    query, key = torch.randn(2, 3, 6, 4, generator=seeded(1), dtype=torch.float64)
    scores = bilinear(query, key)
    omega, q, k = bilinear.weight.detach().numpy(), query.numpy(), key.numpy()
    for t in range(3):
        expected = np.array([[q[t, i] @ omega @ k[t, j] for j in range(6)] for i in range(6)])
        np.testing.assert_allclose(scores[t].detach().numpy(), expected, rtol=1e-10)
        got = infonce(scores)[t].detach().numpy()
        np.testing.assert_allclose(got, brute_infonce(expected), rtol=1e-10)


def test_infonce_of_no_information_is_log_n_and_of_certainty_zero() -> None:
    torch.testing.assert_close(infonce(torch.zeros(7, 7)), torch.full((7,), math.log(7)))
    assert not infonce(1e4 * torch.eye(7)).any()
    worst = infonce(-1e4 * torch.eye(3))
    torch.testing.assert_close(worst, torch.full((3,), 1e4 + math.log(2)))
    assert not infonce(torch.tensor([[123.0]])).any()


@pytest.mark.parametrize("dim", [8, 50, 200])
def test_fresh_scores_are_moderate(dim: int) -> None:
    query, key = torch.randn(2, 128, dim, generator=seeded())
    scores = Bilinear(dim, generator=seeded(1))(query, key)
    assert 0.2 < scores.std() < 1
    assert infonce(scores).mean() < math.log(128) + 0.5


# --- EMA ------------------------------------------------------------------------------------


def test_ema_equals_the_formula_and_its_closed_form() -> None:
    online, target = mlp((3, 5, 2), generator=seeded(1)), mlp((3, 5, 2), generator=seeded(2))
    scrambled(online)
    start = [p.detach().clone() for p in target.parameters()]
    goal = [p.detach().clone() for p in online.parameters()]
    update_ema(target, online, 0.05)
    for now, old, new in zip(target.parameters(), start, goal, strict=True):
        torch.testing.assert_close(now.detach(), 0.05 * new + 0.95 * old)
    for _ in range(39):
        update_ema(target, online, 0.05)
    for now, old, new in zip(target.parameters(), start, goal, strict=True):
        torch.testing.assert_close(now.detach(), new + 0.95**40 * (old - new))
    update_ema(target, online, 1.0)
    for now, left, new in zip(target.parameters(), online.parameters(), goal, strict=True):
        assert torch.equal(now, new) and torch.equal(left, new)
    assert all(p.requires_grad and p.grad_fn is None for p in target.parameters())


def test_frozen_copy_is_apart_and_takes_no_gradient() -> None:
    online = mlp((3, 2))
    copy = frozen_copy(online)
    assert not copy.training and online.training
    assert not any(p.requires_grad for p in copy.parameters())
    assert all(p.requires_grad for p in online.parameters())
    before = [p.clone() for p in copy.parameters()]
    scrambled(online)
    assert all(map(torch.equal, copy.parameters(), before))
