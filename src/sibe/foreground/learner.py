"""Learns from the replay what the robot looks like, now and then, between two updates.

Where two frames share their background, what differs is the robot in one of them or in the other;
which of the two, the colors and shapes of many pairs tell. Robots found so are pasted onto other
backgrounds, where each pixel is known, so that the network knows a robot before a background it
has never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor

from sibe.foreground.crops import anywhere, around_change, crops_at
from sibe.foreground.losses import differs, pair_loss, pasted_loss, rim
from sibe.foreground.network import Foreground
from sibe.foreground.recolor import recolored
from sibe.foreground.recurrence import Frames, StoredFrames, recurring_pairs

FIRST = 1000
"""Updates of the agent before the first training round; then at twice, four times, … as many."""
STEPS, FIRST_STEPS = 600, 2000
"""Optimizer steps of a round, and of the first one."""
_WARM_UP = 100  # steps in which the rate rises; in the first round no robots can be pasted yet
_PAIRS = 8  # per step
_CROP = 44  # side of what is shown of a frame: a quarter of the work, and as much to learn from it
_LEAST, _MOST = 32, 1024  # pairs that a round needs at least, and frames that are searched
_RATE, _FIRST_RATE = 6e-3, 2e-2
_TRIES = 3  # of a round whose result is not accepted
_JUDGED = 64  # pairs that tell
_EXPLAINED = 0.5  # share of the entropy of "differs" that may be left
_SEEN = 0.5  # share of the pixels that differ that must be taken for the robot


class ForegroundLearner:
    """The network, its optimizer, and when it learns.

    Args:
        generator: draws the first weights, and the seed of each round.
        device: where the network lives.
    """

    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self.network = Foreground(generator)
        self.network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=_RATE)
        self._generator, self._device = generator, device

    @staticmethod
    def due(updates: int) -> bool:
        """Whether a training round is due after so many updates of the agent."""
        times, rest = divmod(updates, FIRST)
        return rest == 0 and times.bit_count() == 1

    @property
    def ready(self) -> bool:
        """Whether it has learned anything, and frames are shown without their background."""
        return bool(self.network.ready)

    def learn(self, cameras: Sequence[StoredFrames]) -> bool:
        """Train for a round if enough backgrounds recur; return whether the result was accepted."""
        seed = int(torch.randint(2**62, (), generator=self._generator))
        rng = np.random.default_rng(seed)
        wanted = _MOST // len(cameras)
        pairs = [recurring_pairs(stored, wanted, rng) for stored in cameras]
        one, other = (np.concatenate(frames) for frames in zip(*pairs, strict=True))
        if len(one) < _LEAST:
            return False
        every = -(-len(one) // _JUDGED)
        before = deepcopy((self.network.state_dict(), self.optimizer.state_dict()))
        for _ in range(_TRIES):
            self._train(one, other, cameras, rng)
            if self._explains(one[::every], other[::every]):
                self.network.ready.fill_(True)
                return True
            network, optimizer = deepcopy(before)
            self.network.load_state_dict(network)
            self.optimizer.load_state_dict(optimizer)
        return False

    def _train(
        self,
        one: Frames,
        other: Frames,
        cameras: Sequence[StoredFrames],
        rng: np.random.Generator,
    ) -> None:
        """Take the optimizer steps of a round on pairs of frames."""
        first = not self.ready
        steps, rate = (FIRST_STEPS, _FIRST_RATE) if first else (STEPS, _RATE)
        for step in range(steps):
            for group in self.optimizer.param_groups:
                group["lr"] = rate * min(1, (step + 1) / _WARM_UP) * (1 - step / steps)
            pick = rng.integers(len(one), size=_PAIRS)
            pasted = not (first and step < _WARM_UP)
            stored = cameras[step % len(cameras)] if pasted else None
            loss = self._loss(one[pick], other[pick], stored, rng)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def _explains(self, one: Frames, other: Frames) -> bool:
        """Return whether the network tells where pairs differ, much better than their average.

        What it is nearly sure of is not seen: most of what differs must be more likely than not.
        """
        a, b = (torch.from_numpy(frames).to(self._device) for frames in (one, other))
        different = differs(a, b)
        share = different.double().mean()
        entropy = -torch.xlogy(share, share) - torch.xlogy(1 - share, 1 - share)
        odds_a, odds_b = self.network(a), self.network(b)
        seen = (torch.maximum(odds_a, odds_b) > 0)[different].double().mean()
        loss = pair_loss(odds_a, odds_b, different)
        return bool((loss < _EXPLAINED * entropy) & (seen > _SEEN))

    def _loss(
        self, one: Frames, other: Frames, stored: StoredFrames | None, rng: np.random.Generator
    ) -> Tensor:
        """Return the loss of pairs; with ``stored``, and that of their robots before others."""
        side = min(_CROP, *one.shape[1:3])
        rows, columns = around_change(one, other, side, rng)
        flips = rng.choice((1, -1), size=2)  # a pole hangs long before it stands
        a, b = (
            torch.from_numpy(cut[:, :: flips[0], :: flips[1]].copy()).to(self._device)
            for cut in (crops_at(frames, rows, columns, side) for frames in (one, other))
        )
        different = differs(a, b)
        odds_a, odds_b = self.network(torch.cat((a, b))).chunk(2)
        loss = pair_loss(odds_a, odds_b, different)
        robot = (odds_a.detach() > 0) & different
        if stored is None or not bool(robot.any()):
            return loss
        color = a[robot].double().mean(0).cpu().numpy()
        frames = stored.read(rng.choice(stored.slots, size=len(one)))
        cut = crops_at(frames, *anywhere(frames, side, rng), side)
        behind = recolored(cut, color, rng).to(self._device)
        picture = torch.where(robot[..., None], a.float(), behind)
        return loss + pasted_loss(self.network(picture), robot, rim(robot) & different)

    def masked(self, frame: Frames) -> Frames:
        """Return a frame uint8 [H, W, 3] with gray where there is no robot."""
        if not self.ready:
            return frame
        batch = torch.from_numpy(np.array(frame))[None].to(self._device)
        seen: Frames = self.network.masked(batch)[0].cpu().numpy()
        return seen
