"""Index arithmetic of the replay: which frames are stored, and where a chunk may start.

Frames are counted from the first one ever written; frame ``i`` lives in slot ``i % capacity``, so
the stored frames are ``oldest .. written - 1``. Episodes follow each other without gaps: knowing
the first frame of each is enough to know everything. The valid starts of an episode are one
interval, which makes sampling exact without rejection: draw from the intervals laid end to end.

A chunk may go beyond the end of an episode that terminated, as nothing can happen there: it goes on
in the last state, with reward and discount 0. What comes after a time limit is not known, and no
chunk goes there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sibe.errors import UserError

Index = NDArray[np.int64]


class Span(NamedTuple):
    """Frames ``first .. end - 1`` of one episode, stored or overwritten since."""

    number: int
    first: int
    end: int


class Drawn(NamedTuple):
    """Where chunks start, and the frames ``first … end - 1`` of the episode of each; all [B]."""

    start: Index
    first: Index
    end: Index

    def newest(self, length: int) -> Index:
        """Return the newest frame of each state, [length + 1, B].

        After a termination that is the last one of the episode.
        """
        return np.minimum(self._counted(length), self.end - 1)

    def stacked(self, length: int, stack: int) -> Index:
        """Return the frames of each state, oldest first, [length + 1, B, stack].

        The first frame of an episode stands in for what was before it.
        """
        back = np.arange(stack - 1, -1, -1)
        frames = self._counted(length)[..., None] - back
        seen: Index = np.clip(frames, self.first[:, None], self.end[:, None] - 1)
        return seen

    def after_end(self, length: int) -> NDArray[np.bool_]:
        """Return which transitions [length, B] lie after a termination."""
        return self._counted(length)[:-1] >= self.end - 1

    def _counted(self, length: int) -> Index:
        counted: Index = self.start + np.arange(length + 1)[:, None]
        return counted


class Ring:
    """Counters of a ring of ``capacity`` frames, sampled as stacks of ``stack`` frames."""

    def __init__(self, capacity: int, stack: int) -> None:
        if capacity < 2:
            raise UserError(f"a replay of {capacity} frames is too small: give it at least 2")
        if stack < 1:
            raise UserError(f"a stack of {stack} frames is too small: give it at least 1")
        self.capacity = capacity
        self.stack = stack
        self.written = 0
        self.newest = -1  # number of the newest episode
        self.lost: set[int] = set()  # numbers of episodes whose frames are not there
        self.terminated: set[int] = set()  # numbers of episodes that did not end by a time limit
        self._firsts: deque[int] = deque()  # first frame of each episode still in the ring

    @property
    def oldest(self) -> int:
        """The oldest frame that is still stored."""
        return max(0, self.written - self.capacity)

    @property
    def transitions(self) -> int:
        """Transitions stored: every stored frame has one, except the last of each episode."""
        return self.written - self.oldest - len(self._firsts)

    def push(self, *, first: bool) -> int:
        """Make room for one frame (``first``: of a new episode) and return its slot."""
        if first:
            self.newest += 1
            self._firsts.append(self.written)
        slot = self.written % self.capacity
        self.written += 1
        if len(self._firsts) > 1 and self._firsts[1] <= self.oldest:
            self.terminated.discard(self.newest - len(self._firsts) + 1)
            self._firsts.popleft()
        return slot

    def spans(self) -> list[Span]:
        """Return the episodes with a frame in the ring, oldest first."""
        number = self.newest - len(self._firsts) + 1
        ends = [*self._firsts, self.written][1:]
        return [
            Span(number + i, *span) for i, span in enumerate(zip(self._firsts, ends, strict=True))
        ]

    def restore(self, written: int, firsts: Mapping[int, int], lost: Iterable[int] = ()) -> None:
        """Take over the counters of another ring: frames written, first frame by episode.

        Raises:
            ValueError: if they are not those of a ring of this capacity.
        """
        _check(written, firsts, self.capacity)
        self.written = written
        self.lost = set(lost) & firsts.keys()
        self.terminated = set()
        self.newest = max(firsts, default=-1)
        self._firsts = deque(firsts[number] for number in sorted(firsts))

    def slots(self, frames: Index) -> Index:
        """Return where ``frames`` (any shape) are stored."""
        return frames % self.capacity

    def can_sample(self, length: int, least: int | None = None) -> bool:
        """Whether there is a valid start for a chunk of ``length`` transitions."""
        return bool(self._intervals(length, least)[3].any())

    def draw(
        self, batch: int, length: int, rng: np.random.Generator, least: int | None = None
    ) -> Drawn:
        """Draw ``batch`` valid starts uniformly, with replacement.

        Of the ``length`` transitions those after the first ``least`` may lie after a termination;
        an episode that terminated even earlier makes one chunk. None: no chunk goes there.
        """
        first, end, low, count = self._intervals(length, least)
        ends = np.cumsum(count)
        if not count.any():
            raise UserError(
                f"the replay has no {length} consecutive transitions of one episode to sample "
                f"({self.transitions} stored): collect more steps first, use shorter chunks "
                "(--sac.chunk; --plan2explore.sequence) or a larger replay"
            )
        pick = rng.integers(ends[-1], size=batch)
        episode = np.searchsorted(ends, pick, side="right")
        start = low[episode] + pick - (ends - count)[episode]
        return Drawn(start, first[episode], end[episode])

    def _intervals(self, length: int, least: int | None) -> tuple[Index, Index, Index, Index]:
        """For each episode: its frames, its first valid start, how many there are; each [E].

        A start needs ``length`` more frames of its episode after it, ``least`` if that terminated,
        and its whole stack: where the ring has overwritten the head of an episode, that is
        ``stack - 1`` frames later.
        """
        if length < 1:
            raise ValueError(f"a chunk has at least 1 transition, not {length}")
        if least is not None and not 1 <= least <= length:
            raise ValueError(f"{least} of {length} transitions cannot be needed")
        first = np.fromiter(self._firsts, np.int64, len(self._firsts))
        end = np.append(first[1:], self.written)[: len(first)]
        low = np.where(first >= self.oldest, first, self.oldest + self.stack - 1)
        count = np.maximum(end - length - low, 0)
        if least is not None and self.terminated:
            numbers = self.newest + 1 + np.arange(-len(first), 0)
            ended = np.isin(numbers, list(self.terminated))
            count[ended] = np.maximum(end - least - low, low == first)[ended]
        for index, span in enumerate(self.spans() if self.lost else ()):
            if span.number in self.lost:
                count[index] = 0
        return first, end, low, count


def _check(written: int, firsts: Mapping[int, int], capacity: int) -> None:
    """Refuse counters that no ring of ``capacity`` frames can have."""
    numbers = sorted(firsts)
    starts = [firsts[number] for number in numbers]
    oldest = max(0, written - capacity)
    sound = (
        all(type(value) is int and value >= 0 for value in (written, *numbers, *starts))
        and all(after == before + 1 for before, after in pairwise(numbers))
        and all(after > before for before, after in pairwise([*starts, written]))
        and bool(starts) == (written > 0)
        and all(start <= oldest for start in starts[:1])
        and all(start > oldest for start in starts[1:])
    )
    if not sound:
        raise ValueError("its replay does not add up")
