"""Which pixels of a frame show the robot, and the frame without the rest."""

from __future__ import annotations

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn

GRAY = 128
"""What stands where there is no robot."""
_LEAK = 0.1  # at the learning rate of the first round, plain ReLUs die
_FIRST_PROBABILITY = 0.05  # a robot covers a few percent of the pixels
_RECENT = 64  # frames whose masked version is kept: the stacks of all environments of an evaluation


class Foreground(nn.Module):
    """Frames uint8 ``[N, H, W, 3]`` -> for each pixel, the log-odds that it shows the robot.

    Two layers look at the color alone, three at what surrounds it. It cannot know where in the
    image it is, so it cannot learn what the background shows at a place.
    """

    ready: Tensor

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 32, 1), nn.LeakyReLU(_LEAK), nn.Conv2d(32, 16, 1), nn.LeakyReLU(_LEAK)),
            *(nn.Conv2d(16, 8, 3, padding=1), nn.LeakyReLU(_LEAK)),
            *(nn.Conv2d(8, 8, 3, padding=2, dilation=2), nn.LeakyReLU(_LEAK)),
            nn.Conv2d(8, 1, 3, padding=1),
        )
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):
                assert layer.bias is not None
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
                nn.init.zeros_(layer.bias)
        assert isinstance(layer, nn.Conv2d) and layer.bias is not None
        nn.init.constant_(layer.bias, math.log(_FIRST_PROBABILITY / (1 - _FIRST_PROBABILITY)))
        self.register_buffer("ready", torch.tensor(False))
        self._recent: OrderedDict[bytes, Tensor] = OrderedDict()
        self._recent_weights = b""

    def forward(self, frames: Tensor) -> Tensor:
        """Return log-odds ``[N, H, W]`` for frames ``[N, H, W, 3]`` in 0…255."""
        pixels = (frames.permute(0, 3, 1, 2).float() - 127.5) / 64
        odds: Tensor = self.layers(pixels.contiguous(memory_format=torch.channels_last))
        return odds[:, 0]

    @torch.no_grad()
    def masked(self, frames: Tensor) -> Tensor:
        """Return frames uint8 ``[N, H, W, 3]`` with gray where there is no robot.

        Until the network has learned from anything (``ready``), frames stay as they are.
        """
        if not self.ready:
            return frames
        # By content: an optimizer's fused step changes weights without a trace.
        weights = b"".join(p.cpu().numpy().tobytes() for p in self.parameters())
        if weights != self._recent_weights:
            self._recent.clear()
            self._recent_weights = weights
        return torch.cat([self._masked_frame(frame) for frame in frames.split(1)])

    def _masked_frame(self, frame: Tensor) -> Tensor:
        """Return ``masked`` of one frame ``[1, H, W, 3]``.

        One by one, so that a frame looks the same to the last bit whatever else is in its batch.
        Each is asked for several times: it is in the stack of several states, and is stored.
        """
        key = frame.cpu().numpy().tobytes()
        seen = self._recent.pop(key, None)
        if seen is None or seen.shape != frame.shape:
            seen = torch.where((self(frame) > 0)[..., None], frame, GRAY)
        self._recent[key] = seen  # as the newest
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        return seen

    def masked_states(self, states: Tensor) -> Tensor:
        """Return states uint8 ``[N, H, W, 3·stack]`` with each of their frames as ``masked``."""
        frames = states.unflatten(-1, (-1, 3)).movedim(-2, 1)
        seen = self.masked(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
        whole: Tensor = seen.movedim(1, -2).flatten(-2)
        return whole
