"""The replay: every reading is kept once, chunks of stacked frames are drawn uniformly.

A slot of the ring holds a frame and the transition taken from it; the last frame of an episode has
none. Random shifts are drawn per state, shared by the frames of its stack. On disk the replay is
its finished episodes (`sibe.replay.episodes`) and a small `state` that holds the running one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sibe.envs.sensors import PIXELS, Observation, each
from sibe.errors import UserError
from sibe.foreground.recurrence import StoredFrames
from sibe.replay.chunk import Chunk
from sibe.replay.episodes import Episode, EpisodeError
from sibe.replay.frames import FrameStore
from sibe.replay.lookalikes import CANDIDATES, Thumbnails, grouped
from sibe.replay.ring import Drawn, Index, Ring, Span
from sibe.replay.sampling import Sampling
from sibe.replay.seen_frames import Look, SeenFrames
from sibe.replay.vectors import VectorStore

Shapes = tuple[int, int, int] | Mapping[str, tuple[int, ...]]
"""of one frame, or of readings by sensor: three numbers for a picture, one for a vector"""


class Replay:
    """A ring of ``capacity`` single frames [H, W, C], sampled as stacks of ``stack`` frames.

    With several sensors a frame, wherever one is given or returned, is a dict of readings by
    sensor: pictures uint8 [H, W, C], which share their random shift, and vectors float32 [S].

    Args:
        capacity: frames kept; an episode of T transitions takes T + 1.
        shapes: height, width and channels of one frame; or the shapes of readings by sensor.
        action_dim: length of an action.
        stack: frames per observation.
        pad: the random shift reaches ±``pad`` pixels; 0 is no augmentation.
        groups: whether chunks that look alike can be drawn together.
        look: what samples show of a frame, if not all of it; frames themselves are kept as well.
    """

    def __init__(
        self,
        capacity: int,
        shapes: Shapes,
        action_dim: int,
        *,
        stack: int,
        pad: int = 4,
        groups: bool = False,
        look: Look | None = None,
    ) -> None:
        self._ring = Ring(capacity, stack)
        self._bare = not isinstance(shapes, Mapping)
        by_sensor = _by_sensor(shapes)
        self._stores = {
            name: FrameStore(capacity, shape, pad)
            if len(shape) == 3
            else VectorStore(capacity, shape)
            for name, shape in by_sensor.items()
        }
        # Groups are of states that look alike to the first camera.
        pictures = [name for name, shape in by_sensor.items() if len(shape) == 3]
        self._thumbnails = {
            name: Thumbnails(capacity, by_sensor[name]) for name in pictures[:1] if groups
        }
        self._seen = None if look is None else SeenFrames(look, self._pictures(), capacity, pad)
        self._action = np.zeros((capacity, action_dim), np.float32)
        self._reward = np.zeros(capacity, np.float32)
        self._discount = np.zeros(capacity, np.float32)
        self._pad = pad
        self._running = False

    def __len__(self) -> int:
        return self._ring.transitions

    @property
    def nbytes(self) -> int:
        """Bytes of the ring; RAM grows up to this as it fills."""
        arrays = (self._action, self._reward, self._discount)
        seen = {} if self._seen is None else self._seen.stores
        parts = (*self._stores.values(), *seen.values(), *arrays)
        return sum(part.nbytes for part in parts)

    @staticmethod
    def nbytes_for(capacity: int, shapes: Shapes, action_dim: int, pad: int) -> int:
        """Bytes a replay of this size takes, to refuse it up front."""
        stores = sum(
            FrameStore.nbytes_for(capacity, shape, pad)
            if len(shape) == 3
            else capacity * 4 * shape[0]
            for shape in _by_sensor(shapes).values()
        )
        return stores + capacity * 4 * (action_dim + 2)

    def start(self, frame: Observation) -> None:
        """Begin an episode with its first ``frame`` uint8 [H, W, C]."""
        if self._running:
            raise ValueError("the running episode has not ended: add(..., last=True) comes first")
        self._put(frame, first=True)
        self._running = True

    def add(
        self, action: ArrayLike, reward: float, discount: float, frame: Observation, *, last: bool
    ) -> Episode | None:
        """Store one agent step.

        Args:
            action: what was done at the frame before, [A].
            reward: what it brought, summed over the action repeat.
            discount: 0 at a true termination, else 1 (at a time limit too).
            frame: where it led, uint8 [H, W, C].
            last: the episode ended here, by termination or truncation.

        Returns:
            With ``last``, the finished episode, to be written to disk under its number:
            all of it, or its last ``capacity`` frames if it is longer. Else None.
        """
        if not self._running:
            raise ValueError("no episode is running: start(frame) comes first")
        taken = np.asarray(action, np.float32)
        if taken.shape != self._action.shape[1:]:
            raise ValueError(f"an action is {self._action.shape[1:]}, not {taken.shape}")
        slot = (self._ring.written - 1) % self._ring.capacity
        self._put(frame, first=False)
        self._action[slot] = taken
        self._reward[slot] = reward
        self._discount[slot] = discount
        if not last:
            return None
        self._running = False
        if discount == 0:
            self._ring.terminated.add(self._ring.newest)
        return self._episode(self._ring.spans()[-1])

    def can_sample(self, length: int, least: int | None = None) -> bool:
        """Whether `sample` has anything to draw from for chunks of ``length`` transitions."""
        return self._ring.can_sample(length, least)

    def sample(
        self,
        batch: int,
        length: int,
        rng: np.random.Generator,
        *,
        least: int | None = None,
        frames_per_state: int = 1,
        group: int = 1,
        online: int = 0,
        target: int = 0,
    ) -> Chunk:
        """Draw ``batch`` chunks of ``length`` transitions, uniformly over all valid starts.

        Transitions after the first ``least`` (None: none) may lie after a termination: the picture
        then stands still, and action, reward and discount are 0. An episode that terminated even
        earlier makes one chunk.

        With a ``group`` of more than 1, only the first of each group is drawn so; the others look
        like it (`sibe.replay.lookalikes`).

        The running episode takes part. Stacked (``frames_per_state`` 1), each of the ``length + 1``
        states of each chunk gets a shift of its own. As single frames, those of a chunk share one,
        because its states share frames, and the images for the target encoder get another; only
        the first ``online`` states (0: all) are there for the online encoder, and those from
        ``target`` on for the target encoder. The tensors are the caller's: later calls do not
        touch them.
        """
        if frames_per_state not in (1, self._ring.stack):
            raise ValueError(f"a state has {self._ring.stack} frames, not {frames_per_state}")
        drawn = self._draw(batch, length, least, group, rng)
        states = drawn.newest(length)  # [L+1, B]
        at, after_end = self._ring.slots(states[:-1]), drawn.after_end(length)
        action, reward, discount = (
            torch.from_numpy(_zeroed(values[at], after_end))
            for values in (self._action, self._reward, self._discount)
        )
        seen = drawn.stacked(length, self._ring.stack)  # [L+1, B, stack]
        vectors = self._vectors(states)
        if frames_per_state == 1:
            images = self._images(seen, self._shifts(states.shape, rng))
            return Chunk(self._observation(images, vectors), action, reward, discount)
        # The oldest frames of the first state, then the newest of each.
        frames = np.concatenate((seen[0, :, :-1].T, seen[..., -1]))[..., None]
        parts = frames[: online + frames_per_state - 1 if online else None], frames[target:]
        seen_online, seen_target = (self._shifted(part, vectors, rng) for part in parts)
        return Chunk(seen_online, action, reward, discount, seen_target, frames_per_state, target)

    def minibatch(self, wanted: Sampling, rng: np.random.Generator) -> Chunk:
        """Draw what an agent asks for."""
        return self.sample(
            wanted.batch,
            wanted.length,
            rng,
            least=wanted.least,
            frames_per_state=wanted.frames_per_state,
            group=wanted.group,
            online=wanted.online,
            target=wanted.target,
        )

    def _shifted(
        self, frames: Index, vectors: dict[str, Tensor], rng: np.random.Generator
    ) -> Observation:
        """Return single ``frames [T, B, 1]`` with one shift for each of the B chunks."""
        shifts = self._shifts(frames.shape[1:2], rng)
        images = self._images(frames, np.broadcast_to(shifts, (*frames.shape[:2], 2)))
        return self._observation(images, vectors)

    def _draw(
        self, batch: int, length: int, least: int | None, group: int, rng: np.random.Generator
    ) -> Drawn:
        if group == 1:
            return self._ring.draw(batch, length, rng, least)
        (thumbnails,) = self._thumbnails.values()
        candidates = self._ring.draw(CANDIDATES, length, rng, least)
        slots = self._ring.slots(candidates.start)
        distances = thumbnails.distances(slots[: batch // group], slots)
        return grouped(candidates, distances, group, rng)

    def _shifts(self, shape: tuple[int, ...], rng: np.random.Generator) -> Index:
        return rng.integers(0, 2 * self._pad + 1, size=(*shape, 2))

    def _images(self, frames: Index, shifts: Index) -> dict[str, Tensor]:
        """Return the stacked ``frames [T, B, S]`` cropped at ``shifts [T, B, 2]``, by camera."""
        slots = self._ring.slots(frames)
        flat = slots.reshape(-1, slots.shape[-1])
        crops = np.ascontiguousarray(shifts).reshape(-1, 2)
        stores = self._pictures() if self._seen is None else self._seen.stores
        images = {name: store.stacks(flat, crops) for name, store in stores.items()}
        return {n: image.view(*frames.shape[:2], *image.shape[1:]) for n, image in images.items()}

    def _vectors(self, states: Index) -> dict[str, Tensor]:
        """Return the vectors at ``states [T, B]``, by sensor."""
        slots = self._ring.slots(states)
        stores = self._stores.items()
        return {n: store.take(slots) for n, store in stores if isinstance(store, VectorStore)}

    def _observation(self, images: dict[str, Tensor], vectors: dict[str, Tensor]) -> Observation:
        return images[PIXELS] if self._bare else {**images, **vectors}

    def needed_episodes(self) -> set[int]:
        """Numbers of the finished episodes that have a frame in the ring."""
        numbers = {span.number for span in self._ring.spans()} - self._ring.lost
        return numbers - {self._ring.newest} if self._running else numbers

    def lost_episodes(self) -> list[int]:
        """Numbers of the episodes that should be in the ring and could not be restored."""
        return [span.number for span in self._ring.spans() if span.number in self._ring.lost]

    def state(self) -> dict[str, Any]:
        """Return what the files of the `needed_episodes` do not hold; fit for ``torch.save``."""
        spans = self._ring.spans()
        running = self._episode(spans[-1])._asdict() if self._running else None
        return {
            "layout": self._layout(),
            "frames_written": self._ring.written,
            "episodes": {span.number: span.first for span in spans},
            "running": running and {k: each(torch.from_numpy, a) for k, a in running.items()},
            **({"lost": lost} if (lost := self.lost_episodes()) else {}),
        }

    def restore(
        self, state: dict[str, Any], read: Callable[[int], Episode], *, lossy: bool = False
    ) -> None:
        """Become the replay that gave ``state``; ``read`` returns a finished episode by number.

        From then on every sample equals, byte for byte, that of the replay that went on; unless
        it is ``lossy`` and episodes cannot be read: these are never sampled.

        Raises:
            EpisodeError: if an episode cannot be read, or is not the one that was stored.
            UserError: if the replay had other sizes than this one.
        """
        saved, own = state["layout"], self._layout()
        if saved != own:
            plain = len(saved) == len(own) == 5
            words = "height, width, channels" if plain else "sensors"
            raise UserError(
                f"the saved replay has (capacity, {words}, action) {saved}, this one {own}: "
                "resume with the same settings"
            )
        running = state["running"]
        self._ring.restore(state["frames_written"], state["episodes"], state.get("lost", ()))
        self._running = running is not None
        for span in self._ring.spans():
            if span.number in self._ring.lost:
                continue
            if running is not None and span.number == self._ring.newest:
                arrays = {k: each(lambda t: t.cpu().numpy(), part) for k, part in running.items()}
                self._fill(span, Episode(**arrays))
                continue
            try:
                self._fill(span, read(span.number))
            except EpisodeError:
                if not lossy:
                    raise
                self._ring.lost.add(span.number)

    def _layout(self) -> list[Any]:
        shapes = {name: list(store.shape) for name, store in self._stores.items()}
        sensors = shapes[PIXELS] if self._bare else [shapes]
        return [self._ring.capacity, *sensors, self._action.shape[1]]

    def _put(self, frame: Observation, *, first: bool) -> None:
        readings = {PIXELS: frame} if self._bare else frame
        for name, store in self._stores.items():
            reading = readings[name]
            if reading.shape != store.shape or reading.dtype != store.dtype:
                what = "a frame" if self._bare else f"a reading of {name}"
                raise ValueError(
                    f"{what} is {store.dtype} {store.shape}, not {reading.dtype} {reading.shape}"
                )
        self._store(self._ring.push(first=first), readings)

    def _store(self, slot: int, readings: Mapping[str, NDArray[Any]]) -> None:
        for name, store in self._stores.items():
            store.put(slot, readings[name])
        for name, thumbnails in self._thumbnails.items():
            thumbnails.put(slot, readings[name])
        if self._seen is not None:
            self._seen.put(slot, readings)

    def look_again(self) -> None:
        """Show of every stored frame what ``look`` now makes of it."""
        if self._seen is not None:
            self._seen.again(self._known())

    def stored_frames(self) -> list[StoredFrames]:
        """Return the frames of each camera by episode, as they are: not through ``look``."""
        slots = self._known()
        spans = [span for span in self._ring.spans() if span.number not in self._ring.lost]
        numbers = [np.full(len(self._stored(span)), span.number) for span in spans]
        episode = np.concatenate([np.zeros(0, np.int64), *numbers])
        return [
            StoredFrames(slots, episode, store.samples(slots), store.get)
            for store in self._pictures().values()
        ]

    def _pictures(self) -> dict[str, FrameStore]:
        return {n: store for n, store in self._stores.items() if isinstance(store, FrameStore)}

    def _known(self) -> Index:
        """Slots of all frames that are stored and not lost, by episode."""
        spans = [span for span in self._ring.spans() if span.number not in self._ring.lost]
        return np.concatenate([np.zeros(0, np.int64), *(self._stored(span) for span in spans)])

    def _stored(self, span: Span) -> Index:
        """Slots of the frames of an episode that are still in the ring, in order."""
        return self._ring.slots(np.arange(max(span.first, self._ring.oldest), span.end))

    def _episode(self, span: Span) -> Episode:
        slots = self._stored(span)
        steps = slots[:-1]
        readings = {name: store.get(slots) for name, store in self._stores.items()}
        frames = readings[PIXELS] if self._bare else readings
        return Episode(frames, self._action[steps], self._reward[steps], self._discount[steps])

    def _fill(self, span: Span, episode: Episode) -> None:
        """Write back what the ring held of ``episode``; it is aligned at its end."""
        slots = self._stored(span)
        whole = min(span.end - span.first, self._ring.capacity)
        frames = episode.frames
        readings = frames if isinstance(frames, dict) else {PIXELS: frames}
        shapes = {name: readings[name].shape for name in sorted(readings)}
        shape = {name: (whole, *self._stores[name].shape) for name in sorted(self._stores)}
        actions, action = episode.action.shape[1], self._action.shape[1]
        if shapes != shape or actions != action:
            raise EpisodeError(
                f"episode {span.number} does not fit the saved replay ({shapes} and {actions} "
                f"actions, not {shape} and {action}): put back its own file, or start the run in "
                "a new folder"
            )
        begin = whole - len(slots)
        for place, slot in enumerate(slots.tolist(), begin):
            self._store(slot, {name: part[place] for name, part in readings.items()})
        steps = slots[:-1]
        begin = len(episode.reward) - len(steps)
        self._action[steps] = episode.action[begin:]
        self._reward[steps] = episode.reward[begin:]
        self._discount[steps] = episode.discount[begin:]
        if len(episode.discount) and episode.discount[-1] == 0:
            self._ring.terminated.add(span.number)


def _zeroed(values: NDArray[Any], where: NDArray[np.bool_]) -> NDArray[Any]:
    """Set ``values [L, B, …]`` to 0 ``where [L, B]``, in place."""
    values[where] = 0
    return values


def _by_sensor(shapes: Shapes) -> dict[str, Any]:
    return dict(shapes) if isinstance(shapes, Mapping) else {PIXELS: shapes}
