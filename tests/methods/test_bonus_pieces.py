"""What the exploration bonuses share, each piece against a library or a plain loop."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from method_inputs import seeded
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from sibe.nn.ensemble import Ensemble
from sibe.nn.mlp import mlp
from sibe.nn.neighbors import nearest_distances
from sibe.nn.running import RunningMoments
from sibe.nn.sinkhorn import sinkhorn


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed))


# --- nearest neighbors ---------------------------------------------------------------------


def by_library(query: Tensor, points: Tensor, k: int) -> np.ndarray:
    tree = NearestNeighbors(n_neighbors=k, algorithm="kd_tree").fit(points.double().numpy())
    distance, _ = tree.kneighbors(query.double().numpy())
    return np.asarray(distance)


@pytest.mark.parametrize(("n", "m", "dim", "k"), [(7, 40, 3, 3), (1, 5, 1, 5), (64, 500, 50, 4)])
def test_neighbors_are_those_of_scikit_learn(n: int, m: int, dim: int, k: int) -> None:
    query, points = normal(n, dim), normal(m, dim, seed=1)
    ours = nearest_distances(query, points, k)
    np.testing.assert_allclose(ours.numpy(), by_library(query, points, k), rtol=1e-5)


def test_points_that_coincide_are_at_no_distance_even_far_from_the_origin() -> None:
    points = normal(50, 8) + 100
    distance = nearest_distances(points, points, 2)
    assert (distance[:, 0] == 0).all() and (distance[:, 1] > 0.1).all()
    np.testing.assert_allclose(distance.numpy(), by_library(points, points, 2), rtol=1e-4)


def test_only_known_points_count_and_missing_ones_are_infinitely_far() -> None:
    query, points = normal(6, 4), normal(30, 4, seed=1)
    known = torch.arange(30) % 3 == 0
    ours = nearest_distances(query, points, 3, known)
    np.testing.assert_allclose(ours.numpy(), by_library(query, points[known], 3), rtol=1e-5)
    two = nearest_distances(query, points, 3, torch.arange(30) < 2)
    assert two[:, :2].isfinite().all() and (two[:, 2] == math.inf).all()


# --- running moments ------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sampled_from([(), (3,), (2, 2)]),
    st.floats(-1e4, 1e4),
)
def test_moments_are_numpys_however_the_data_is_cut(
    sizes: list[int], shape: tuple[int, ...], shift: float
) -> None:
    values = np.random.default_rng(len(sizes)).normal(shift, 1.0, (sum(sizes), *shape))
    moments = RunningMoments(shape)
    for batch in np.split(values, np.cumsum(sizes)[:-1]):
        moments.update(torch.from_numpy(batch))
    assert moments.count.item() == len(values)
    np.testing.assert_allclose(moments.mean.numpy(), values.mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(moments.var.numpy(), values.var(0), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(moments.std.numpy(), values.std(0), rtol=1e-6, atol=1e-6)


def test_a_small_spread_around_a_large_mean_survives_many_small_updates() -> None:
    rng = np.random.default_rng(0)
    values = (1e4 + rng.normal(0, 0.1, 3_000)).astype(np.float32)
    moments = RunningMoments()
    for batch in values.reshape(-1, 2):
        moments.update(torch.from_numpy(batch))
    assert moments.std.item() == pytest.approx(values.astype(np.float64).std(), rel=1e-6)


def test_standardized_values_have_unit_spread_and_are_clipped() -> None:
    moments, x = RunningMoments((4,)), normal(500, 4) * 3 + 7
    moments.update(x.reshape(5, 100, 4))  # all leading dimensions are samples
    y = moments.standardize(x, 5.0)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.std(0, correction=0), torch.ones(4))
    assert moments.standardize(x + 1e6, 5.0).eq(5).all()


def test_scaled_errors_are_divided_by_the_spread_so_far() -> None:
    moments, x = RunningMoments(), normal(2, 200).exp()
    first = moments.scale(x[0])
    assert x[0].std() > x[0].mean()
    np.testing.assert_allclose(first.numpy(), x[0].numpy() / x[0].numpy().std(), rtol=1e-5)
    second = moments.scale(x[1])
    np.testing.assert_allclose(second.numpy(), x[1].numpy() / x.numpy().std(), rtol=1e-5)
    assert second.dtype == torch.float32


@pytest.mark.parametrize("value", [0.0, 1e-30, 3.0])
def test_errors_that_are_all_alike_do_not_explode(value: float) -> None:
    scaled = RunningMoments().scale(torch.full((4, 2), value))
    assert scaled.isfinite().all() and (scaled <= 1.001).all()


def test_the_running_mean_of_scaled_errors_is_at_most_one() -> None:
    for spread in (0.01, 0.5, 3.0):
        x = (normal(4000) * spread).exp()
        assert RunningMoments().scale(x).mean() <= 1.001


def test_with_a_memory_old_values_fade() -> None:
    fading, x = RunningMoments(memory=40), normal(30, 10).double()
    for batch in x:
        fading.update(batch)
    # The fourth batch fills the memory; each one after it takes a quarter of the weight.
    weights = [0.25 * 0.75**26] * 4 + [0.25 * 0.75 ** (25 - i) for i in range(26)]
    assert sum(weights) == pytest.approx(1) and fading.count.item() == 40
    mean = sum(w * b.mean() for w, b in zip(weights, x, strict=True))
    square = sum(w * b.square().mean() for w, b in zip(weights, x, strict=True))
    assert fading.mean.item() == pytest.approx(float(mean))
    assert fading.var.item() == pytest.approx(float(square - mean**2))
    fading.update(normal(50, seed=1) + 9)  # more than it can remember: only this is left
    assert fading.mean.item() == pytest.approx((normal(50, seed=1) + 9).mean().item())


def test_moments_travel_with_the_state_dict() -> None:
    source, target, file = RunningMoments((2,)), RunningMoments((2,)), io.BytesIO()
    source.update(normal(9, 2))
    torch.save(source.state_dict(), file)
    file.seek(0)
    target.load_state_dict(torch.load(file, weights_only=True))
    for moments in (source, target):
        moments.update(normal(5, 2, seed=1))
    assert set(source.state_dict()) == {"count", "mean", "var"}
    for name, value in source.state_dict().items():
        assert torch.equal(value, target.state_dict()[name])


# --- ensembles ------------------------------------------------------------------------------

SIZES, MEMBERS = (3, 8, 8, 2), 4


def apart() -> list[nn.Sequential]:
    """The same members as separate networks, drawn one after another."""
    generator = seeded(5)
    return [mlp(SIZES, generator=generator) for _ in range(MEMBERS)]


@pytest.mark.parametrize("shape", [(3,), (6, 3), (4, 6, 3)])  # the last has as many rows as members
def test_an_ensemble_is_as_many_separate_networks(shape: tuple[int, ...]) -> None:
    together, x = Ensemble(SIZES, MEMBERS, generator=seeded(5)), normal(*shape)
    expected = torch.stack([network(x) for network in apart()])
    torch.testing.assert_close(together(x), expected)
    own = normal(MEMBERS, *shape, seed=1)
    expected = torch.stack([network(part) for network, part in zip(apart(), own, strict=True)])
    torch.testing.assert_close(together(own, own=True), expected)


def test_members_learn_apart() -> None:
    together, separate = Ensemble(SIZES, MEMBERS, generator=seeded(5)), apart()
    x, weights = normal(6, 3), torch.tensor([1.0, 0.0, 2.0, -1.0])
    (together(x).square().mean((1, 2)) * weights).sum().backward()
    for member, network in enumerate(separate):
        (network(x).square().mean() * weights[member]).backward()
        linear = [layer for layer in network if isinstance(layer, nn.Linear)]
        for layer, weight, bias in zip(linear, together.weights, together.biases, strict=True):
            assert layer.weight.grad is not None and layer.bias.grad is not None
            torch.testing.assert_close(weight.grad[member].T, layer.weight.grad)
            torch.testing.assert_close(bias.grad[member, 0], layer.bias.grad)
    assert len(list(together.parameters())) == 6


# --- Sinkhorn -------------------------------------------------------------------------------


def plain_sinkhorn(scores: np.ndarray, iterations: int) -> np.ndarray:
    """Assignments ``[N, K]`` by the loop of the papers, in double precision."""
    q = np.exp(scores - scores.max())
    q /= q.sum()
    n, k = q.shape
    for _ in range(iterations):
        for cluster in range(k):
            q[:, cluster] /= q[:, cluster].sum() * k
        for sample in range(n):
            q[sample] /= q[sample].sum() * n
    return np.asarray(q * n)


@pytest.mark.parametrize(("n", "k"), [(16, 4), (5, 30), (1, 3), (12, 12)])
@pytest.mark.parametrize("iterations", [1, 3, 10])
def test_sinkhorn_is_the_plain_loop(n: int, k: int, iterations: int) -> None:
    scores = normal(n, k) / 0.3
    ours = sinkhorn(scores, iterations)
    expected = plain_sinkhorn(scores.double().numpy(), iterations)
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-4, atol=1e-7)


def test_sinkhorn_rows_sum_to_one_and_columns_to_an_equal_share() -> None:
    scores = normal(24, 6).double() / 0.5 + torch.arange(6) * 3  # cluster 5 attracts all
    assert (scores.softmax(-1).sum(0)[5] > 15).all()
    torch.testing.assert_close(sinkhorn(scores).sum(1), torch.ones(24).double())
    torch.testing.assert_close(sinkhorn(scores, 500).sum(0), torch.full((6,), 4.0).double())


def test_sinkhorn_stays_finite_at_any_temperature() -> None:
    q = sinkhorn(normal(10, 5) * 1e4)
    assert q.isfinite().all()
    torch.testing.assert_close(q.sum(1), torch.ones(10))
