"""How Plan2Explore acts: the RSSM follows each episode, and the actor sees its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sibe.agents.plan2explore.behavior import LatentActor
from sibe.agents.plan2explore.rssm import State
from sibe.agents.plan2explore.world_model import WorldModel
from sibe.agents.protocol import Actions, Missing
from sibe.envs.sensors import Observation, count, each
from sibe.errors import UserError
from sibe.nn.gaussian import standard_normal


class RecurrentPolicy:
    """Acts in several episodes at once and remembers the state of each.

    Args:
        model: the world model.
        actor: returns the actor for collecting (True) or for evaluation (False).
        action_dim: A.
        action_noise: standard deviation of the noise added to actions while collecting.
        device: where the networks live.
    """

    def __init__(
        self,
        model: WorldModel,
        actor: Callable[[bool], LatentActor],
        action_dim: int,
        action_noise: float,
        device: torch.device,
    ) -> None:
        self._model, self._actor, self._device = model, actor, device
        self._action_dim, self._action_noise = action_dim, action_noise
        self._memory: tuple[State, Tensor] | None = None
        self._episodes: list[int] = []

    def reset(self) -> None:
        """Begin new episodes: drop the memory of the last ones."""
        self._memory = None

    @torch.no_grad()
    def act(
        self,
        obs: Observation,
        generator: torch.Generator | None,
        episodes: Sequence[int] | None = None,
        missing: Missing | None = None,
    ) -> Actions:
        """Return actions ``[N, A]`` for frames uint8 ``[N, H, W, 3]``, or readings by sensor.

        With a generator the state is sampled from the posterior and the action from the actor,
        plus noise; without, both are means. Where every sensor is ``missing`` the model goes on
        without a frame: the state is the prior's.
        """
        before = self._recall(list(range(count(obs))) if episodes is None else list(episodes))
        state, action = before
        readings = each(lambda part: torch.from_numpy(part).to(self._device), obs)
        absent = None if missing is None else torch.from_numpy(missing).to(self._device)
        embedding = self._model.embed(readings, absent)
        noise = torch.zeros_like(state.stoch)
        if generator is not None:
            noise = standard_normal(noise, generator)
        state = self._model.rssm.observe_step(*before, embedding, noise)
        if absent is not None:
            blind = absent.all(-1, keepdim=True)
            prior = self._model.rssm.imagine_step(*before, noise)
            state = State(*(torch.where(blind, *parts) for parts in zip(prior, state, strict=True)))
        action = self._actor(generator is not None).act(state.features, generator)
        if generator is not None:
            action = action + self._action_noise * standard_normal(action, generator)
            action = action.clamp(-1, 1)
        self._memory = state, action
        taken: Actions = action.cpu().numpy()
        return taken

    def _recall(self, episodes: list[int]) -> tuple[State, Tensor]:
        """Return state and last action of ``episodes``; zeros before the first frame."""
        before, self._episodes = self._episodes, episodes
        if self._memory is None:
            initial = self._model.rssm.initial(len(episodes))
            return initial, initial.stoch.new_zeros(len(episodes), self._action_dim)
        state, action = self._memory
        if episodes == before:
            return state, action
        unknown = sorted(set(episodes) - set(before))
        if unknown:
            raise UserError(
                f"episodes {unknown} were not running: call reset() before more episodes begin"
            )
        rows = [before.index(episode) for episode in episodes]
        return State(*(part[rows] for part in state)), action[rows]
