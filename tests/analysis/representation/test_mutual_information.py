"""InfoNCE as an estimate of mutual information, on Gaussians whose mutual information is known.

x and y are d pairs of unit Gaussians with correlation ρ: I(x; y) = -d/2 · log(1 - ρ²) nats. The
bound log N - InfoNCE must stay below it, come close to it when it is well below log N, and
never exceed log N. All figures are held-out: none of the batches was trained on.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from sibe.nn.contrastive import Bilinear, infonce
from sibe.nn.mlp import mlp

N = 128


def truth(dim: int, rho: float) -> float:
    return -0.5 * dim * math.log(1 - rho**2)


def pairs(dim: int, rho: float, batches: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, noise = torch.randn(2, batches, N, dim, generator=generator)
    return x, rho * x + math.sqrt(1 - rho**2) * noise


def bound(scores: Tensor) -> tuple[float, float]:
    """Mean and standard error of log N - InfoNCE over batches of scores [batches, N, N]."""
    values = math.log(N) - infonce(scores).double().mean(-1)
    return values.mean().item(), (values.std() / math.sqrt(len(values))).item()


class Critic(nn.Module):
    """The score function of SIBE in small: a bilinear form of two networks' features."""

    def __init__(self, dim: int, generator: torch.Generator) -> None:
        super().__init__()
        self.query = mlp((dim, 64, 16), generator=generator)
        self.key = mlp((dim, 64, 16), generator=generator)
        self.bilinear = Bilinear(16, generator=generator)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        scores: Tensor = self.bilinear(self.query(x), self.key(y))
        return scores


def train(dim: int, rho: float, steps: int) -> list[tuple[float, float]]:
    """Train a critic and return its held-out bound before, half-way and at the end."""
    generator = torch.Generator().manual_seed(0)
    critic = Critic(dim, generator)
    optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3)
    held_out = pairs(dim, rho, 200, generator)
    history = []
    for step in range(steps + 1):
        if step % (steps // 2) == 0:
            with torch.no_grad():
                history.append(bound(critic(*held_out)))
        loss = infonce(critic(*pairs(dim, rho, 1, generator))).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return history


def optimal_scores(x: Tensor, y: Tensor, rho: float) -> Tensor:
    """log p(y|x) - log p(y) of all pairs, up to a constant: the best critic there is."""
    distance = (y[:, None] - rho * x[:, :, None]).square().sum(-1)
    return 0.5 * y.square().sum(-1)[:, None] - 0.5 * distance / (1 - rho**2)


@pytest.mark.parametrize(("dim", "rho"), [(2, 0.5), (1, 0.9), (4, 0.6), (4, 0.8)])
def test_the_best_critic_nearly_reaches_the_truth_from_below(dim: int, rho: float) -> None:
    x, y = pairs(dim, rho, 300, torch.Generator().manual_seed(1))
    mean, error = bound(optimal_scores(x, y, rho))
    assert truth(dim, rho) < 0.5 * math.log(N)
    # With N = 128 the bound's own bias at these truths is a few percent.
    assert 0.9 * truth(dim, rho) - 3 * error <= mean <= truth(dim, rho) + 3 * error


@pytest.mark.parametrize(("dim", "rho"), [(2, 0.8), (4, 0.8)])
def test_a_learned_critic_approaches_the_truth_from_below(dim: int, rho: float) -> None:
    (start, _), (half, _), (end, error) = train(dim, rho, 800)
    assert start < 0.25 * truth(dim, rho) and start < half < end + 3 * error
    assert end > 0.75 * truth(dim, rho)
    assert end <= truth(dim, rho) + 3 * error


def test_independent_variables_share_nothing() -> None:
    *_, (end, error) = train(4, 0.0, 200)
    assert end <= 3 * error


def test_the_bound_saturates_at_log_n() -> None:
    dim, rho = 16, 0.999
    assert truth(dim, rho) > 10 * math.log(N)
    x, y = pairs(dim, rho, 50, torch.Generator().manual_seed(1))
    best, _ = bound(optimal_scores(x, y, rho))
    assert 0.999 * math.log(N) < best <= math.log(N)
    *_, (learned, _) = train(dim, rho, 200)
    assert 0.75 * math.log(N) < learned <= math.log(N)
