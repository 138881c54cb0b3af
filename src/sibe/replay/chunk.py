"""What the replay hands the agent: short sequences of consecutive transitions, in batches."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sibe.envs.sensors import Observation, each


class Chunk(NamedTuple):
    """``L`` consecutive transitions of one episode, ``B`` times; never across two episodes.

    After a termination, if the chunk goes on, the picture stands still and all numbers are 0.

    Transition ``t`` leads from state ``t`` to state ``t + 1``. States come in one of two forms:
    stacked, where the channel axis of ``obs`` holds the frames of a state, oldest first; or as
    ``frames_per_state`` single frames, which states that overlap in time share. With several
    sensors, ``obs`` is a dict by sensor: so are the pictures of each camera, and a vector is
    float32 [L+1, B, S].
    """

    # uint8 [L+1, B, H, W, C*stack], or single frames [≤ L+frames_per_state, B, H, W, C]
    obs: Observation
    action: Tensor  # float32 [L, B, A]
    reward: Tensor  # float32 [L, B]
    discount: Tensor  # float32 [L, B], 0 only from a true termination on; a time limit is 1
    obs_target: Observation | None = None  # obs with another random shift, for the target encoder
    frames_per_state: int = 1  # along the first axis of obs
    first_target: int = 0  # state that the pictures of obs_target begin with

    def online(self, first: int, end: int) -> Observation:
        """Return the images of states ``first … end - 1`` for the online encoder."""
        return each(lambda part: self._cut(part, first, end, 0), self.obs)

    def target(self, first: int, end: int) -> Observation:
        """Return the images of states ``first … end - 1`` for the target encoder."""
        images = self.obs if self.obs_target is None else self.obs_target
        return each(lambda part: self._cut(part, first, end, self.first_target), images)

    def _cut(self, part: Tensor, first: int, end: int, begins: int) -> Tensor:
        if part.dtype == torch.uint8:  # pictures, which begin with state ``begins``
            first, end = first - begins, end - begins + self.frames_per_state - 1
        if not 0 <= first <= end <= len(part):
            raise ValueError("the chunk was sampled without these states")
        return part[first:end]

    def to(self, device: torch.device) -> Chunk:
        """Return the chunk on ``device``; a GPU fetches it from pinned memory as it goes on."""
        obs = each(lambda part: _move(part, device), self.obs)
        action, reward, discount = (_move(part, device) for part in self[1:4])
        target = self.obs_target
        if target is not None:
            target = each(lambda part: _move(part, device), target)
        return self._replace(
            obs=obs, action=action, reward=reward, discount=discount, obs_target=target
        )


def _move(part: Tensor, device: torch.device) -> Tensor:
    part = part.pin_memory() if device.type == "cuda" else part
    return part.to(device, non_blocking=True)
