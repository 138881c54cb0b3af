"""The recurrent state-space model (Hafner et al. 2019): a GRU beside a Gaussian.

The state is (h, s): h_t = GRU(h_{t-1}, s_{t-1}, a_{t-1}) is deterministic; s_t is drawn from the
posterior q(s_t | h_t, e_t) where an embedding e_t of the frame is at hand, and from the prior
p(s_t | h_t) in imagination. Noise is an argument everywhere: the model itself draws nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibe.agents.plan2explore.networks import elu_mlp, gaussian_from, glorot_
from sibe.nn.gaussian import Gaussian


class State(NamedTuple):
    """What the model believes."""

    deter: Tensor
    """h ``[..., D]``"""
    stoch: Tensor
    """s ``[..., S]``"""

    @property
    def features(self) -> Tensor:
        """[s, h] ``[..., S+D]``: what all heads see."""
        return torch.cat((self.stoch, self.deter), dim=-1)


class Observed(NamedTuple):
    """A sequence of T frames as the model sees it; everything is ``[T, B, …]``."""

    state: State
    posterior: Gaussian
    prior: Gaussian


class RSSM(nn.Module):
    """The model; D deterministic, S stochastic, E the size of an embedding."""

    def __init__(
        self,
        embedding: int,
        action_dim: int,
        *,
        deterministic: int,
        stochastic: int,
        hidden: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.sizes = (deterministic, stochastic)
        self.inward = nn.Linear(stochastic + action_dim, hidden)
        self.gru = nn.GRUCell(hidden, deterministic)
        # One layer on [h, e], in two halves: that on e need not wait for h, step by step.
        self.from_deter = nn.Linear(deterministic, hidden, bias=False)
        self.from_embedding = nn.Linear(embedding, hidden)
        self.posterior_out = nn.Linear(hidden, 2 * stochastic)
        glorot_(self, generator)
        self.prior_net = elu_mlp((deterministic, hidden, 2 * stochastic), generator=generator)

    @property
    def features(self) -> int:
        """Size of [s, h]."""
        return sum(self.sizes)

    def initial(self, batch: int) -> State:
        """Return the state before the first frame of an episode: zeros."""
        like = self.inward.weight
        return State(*(like.new_zeros(batch, size) for size in self.sizes))

    def advance(self, state: State, action: Tensor) -> Tensor:
        """Return h_t ``[N, D]`` from (h, s)_{t-1} and a_{t-1} ``[N, A]``."""
        x = F.elu(self.inward(torch.cat((state.stoch, action), dim=-1)))
        deter: Tensor = self.gru(x, state.deter)
        return deter

    def prior(self, deter: Tensor) -> Gaussian:
        """Return p(s_t | h_t) given h ``[..., D]``."""
        return gaussian_from(self.prior_net(deter))

    def _posterior(self, deter: Tensor, from_embedding: Tensor) -> Tensor:
        raw: Tensor = self.posterior_out(F.elu(self.from_deter(deter) + from_embedding))
        return raw

    def posterior(self, deter: Tensor, embedding: Tensor) -> Gaussian:
        """Return q(s_t | h_t, e_t) given h ``[..., D]`` and e ``[..., E]``."""
        return gaussian_from(self._posterior(deter, self.from_embedding(embedding)))

    def imagine_step(self, state: State, action: Tensor, noise: Tensor) -> State:
        """Go one step without a frame; noise ``[N, S]``."""
        deter = self.advance(state, action)
        return State(deter, _sample(self.prior(deter), noise))

    def observe_step(self, state: State, action: Tensor, embedding: Tensor, noise: Tensor) -> State:
        """Go one step and see its frame's embedding ``[N, E]``; noise ``[N, S]``, 0 is the mean."""
        deter = self.advance(state, action)
        return State(deter, _sample(self.posterior(deter, embedding), noise))

    def observe(self, embedding: Tensor, action: Tensor, noise: Tensor) -> Observed:
        """See a whole sequence from the initial state on.

        Args:
            embedding: e_0 … e_{T-1}, ``[T, B, E]``.
            action: what led to each frame, ``[T, B, A]``; zeros for the first.
            noise: ``[T, B, S]``.
        """
        seen = self.from_embedding(embedding)
        state = self.initial(embedding.shape[1])
        deters: list[Tensor] = []
        raws: list[Tensor] = []
        stochs: list[Tensor] = []
        for before, frame, epsilon in zip(action, seen, noise, strict=True):
            deter = self.advance(state, before)
            raw = self._posterior(deter, frame)
            state = State(deter, _sample(gaussian_from(raw), epsilon))
            deters.append(deter)
            raws.append(raw)
            stochs.append(state.stoch)
        deter = torch.stack(deters)
        return Observed(
            State(deter, torch.stack(stochs)),
            gaussian_from(torch.stack(raws)),
            self.prior(deter),
        )


def _sample(gaussian: Gaussian, noise: Tensor) -> Tensor:
    return gaussian.mean + gaussian.std * noise
