"""The method's own loss without critic and actor: what it teaches the encoder by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from sibe.agents.sac.agent import SAC
from sibe.analysis.representation.latents import represent
from sibe.analysis.representation.ridge import Floats
from sibe.catalogue.run_config import sampling
from sibe.errors import UserError
from sibe.ladder.decoding import r2_of_features
from sibe.ladder.fixed_episodes import FixedEpisodes
from sibe.ladder.marks import marks
from sibe.methods.base import Latents
from sibe.nn.ema import update_ema
from sibe.replay.chunk import Chunk
from sibe.training.seeding import numpy_stream

Report = Callable[[int, float, dict[str, Floats]], None]
"""Updates, mean loss since the mark before (NaN at the first), R² ``[K]`` by representation."""


class MethodAlone:
    """Steps the encoder and the method of an agent, and nothing else of it.

    What a method gives to the actor's optimizer (``actor_parameter_groups``) stays as it is.
    """

    def __init__(self, agent: SAC) -> None:
        self.agent = agent
        self._updates = 0
        groups: list[dict[str, Any]] = [
            {"params": list(agent.encoder.parameters()), "lr": agent.config.encoder.lr},
            *(dict(group) for group in agent.method.parameter_groups()),
        ]
        self._optimizer = torch.optim.Adam(groups, fused=True)

    def update(self, chunk: Chunk) -> float:
        """Learn from a minibatch as `SAC.update` would without a critic; return the loss."""
        agent, length = self.agent, self.agent.config.sac.chunk
        chunk = chunk.to(agent.device)
        c = agent.encoder(chunk.online(0, length))
        with torch.no_grad():
            still = length if agent.method.predicts_frame else 0
            c_next = agent.target_encoder(chunk.target(1, length + 1), still)[-length:]
        latents = Latents(c, c_next, chunk.action[:length], chunk.reward[:length])
        loss = agent.method(latents, agent.generator).loss
        if not loss.requires_grad:
            raise UserError(
                f"{agent.config.method} has no loss of its own: leave the rung alone out "
                "(--rungs state error supervised agent)"
            )
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        if self._updates % agent.config.sac.target_every == 0:
            update_ema(agent.target_encoder, agent.encoder, agent.config.encoder.tau)
            agent.method.update_targets()
        self._updates += 1
        return float(loss.detach())


def train_alone(agent: SAC, episodes: FixedEpisodes, updates: int, report: Report) -> None:
    """Let the method's loss teach the encoder of ``agent``; report at a few marks, 0 included."""
    alone = MethodAlone(agent)
    # Whole chunks only: after a termination there is nothing to predict.
    wanted = sampling(agent.config)._replace(least=None)
    rng = numpy_stream(agent.config.seed, "alone")
    looks = marks(updates)
    losses: list[float] = []
    for update in range(updates + 1):
        if update in looks:
            r2 = {
                name: r2_of_features(episodes.moments, values)
                for name, values in represent(agent, episodes.moments.images).items()
            }
            report(update, float(np.mean(losses)) if losses else float("nan"), r2)
            losses = []
        if update == updates:
            break
        chunk = episodes.replay.minibatch(wanted, rng)
        losses.append(alone.update(chunk._replace(action=chunk.action[..., : episodes.action_dim])))
