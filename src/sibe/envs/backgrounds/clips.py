"""A bank of clips on disk: what is painted behind the robot in the natural-video setting.

A bank is a folder of two files: ``frames.bin``, uint8 [N, S, S, 3], memory-mapped so that all
environments of a machine share one copy of it, and ``manifest.json``, which says where each clip
comes from (with its hash), which frames are its own and which split it belongs to. The manifest has
a checksum of its own and one of the frames; the latter is compared by ``verify``, not at each start
of a run, as a bank may have many gigabytes. Clips are decoded (``decode.py``) or generated
(``synthetic.py``) once; training needs no codec.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sibe.envs.tasks import MAX_SIZE
from sibe.errors import UserError
from sibe.storage.contained_file import open_file
from sibe.storage.json_file import digest, read_json
from sibe.storage.temporary_folder import publish_folder, replacing_folder

FORMAT = 1
FRAMES, MANIFEST = "frames.bin", "manifest.json"
KINDS = ("videos", "synthetic")
SPLITS = ("train", "eval")
_LARGEST = 1 << 44  # bytes of frames: they are mapped, not read
# From the sources of the clips that had frames, in order, to their splits.
Splitter = Callable[[Sequence[str]], Sequence[str]]
_HOW = "make one with `sibe videos prepare FOLDER --out BANK`"


class Clip(NamedTuple):
    """One clip of a bank: frames ``start`` to ``start + frames - 1``."""

    source: str
    sha256: str
    start: int
    frames: int
    split: str


class Footage(NamedTuple):
    """One clip to be written; ``frames`` yields uint8 [S, S, 3] and is read once, in order."""

    source: str
    sha256: str
    frames: Iterable[NDArray[np.uint8]]


class ClipBank:
    """A read-only bank of square RGB frames; open one with :meth:`open`.

    A copy sent to another process carries only the path and maps the file anew there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kind, self.size, self._clips, self._sha256 = _read_manifest(folder)
        shape = (self._clips[-1].start + self._clips[-1].frames, self.size, self.size, 3)
        with open_file(folder / FRAMES, within=folder, limit=_LARGEST) as file:
            have, want = os.fstat(file.fileno()).st_size, math.prod(shape)
            if have != want:
                raise ValueError(f"{FRAMES} has {have} bytes, {MANIFEST} says {want}")
            mapped = np.memmap(file, dtype=np.uint8, mode="r", shape=shape)
        self._frames: NDArray[np.uint8] = mapped.view(np.ndarray)

    @classmethod
    def open(cls, folder: Path) -> ClipBank:
        """Open the bank in ``folder``; anything but a whole bank is a UserError."""
        folder = Path(folder).resolve()
        try:
            return cls(folder)
        except (ValueError, OSError) as error:
            raise UserError(f"clip bank {folder} is damaged ({error}): {_HOW}") from error

    def verify(self) -> None:
        """Refuse frames that are not those that were written; this reads all of them."""
        if self._sha256 and hashlib.sha256(self._frames.data).hexdigest() != self._sha256:
            raise UserError(
                f"clip bank {self.folder} is damaged (the checksum of {FRAMES} is wrong): {_HOW}"
            )

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        # np.memmap would pickle every frame.
        return ClipBank.open, (self.folder,)

    def __len__(self) -> int:
        return len(self._frames)

    def clips(self, split: str) -> tuple[Clip, ...]:
        """Return the clips of ``split``; a bank without any of that split offers all its clips."""
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is none of {SPLITS}")
        return tuple(clip for clip in self._clips if clip.split == split) or self._clips

    def frame(self, index: int, height: int, width: int) -> NDArray[np.uint8]:
        """Return frame ``index`` of the bank as a new uint8 [height, width, 3].

        Args:
            index: counted over the whole bank; a clip's frame t is ``clip.start + t``.
            height: wanted height; equal to the bank's size, the bytes come back untouched.
            width: wanted width.
        """
        if not 0 <= index < len(self._frames):
            raise IndexError(f"frame {index} of a bank of {len(self._frames)}")
        frame: NDArray[np.uint8] = self._frames[index]
        if (height, width) == (self.size, self.size):
            return frame.copy()
        return fit(Image.fromarray(frame), height, width)


def fit(image: Image.Image, height: int, width: int) -> NDArray[np.uint8]:
    """Center-crop ``image`` to the wanted aspect ratio and resize: uint8 [height, width, 3]."""
    crop_width = min(image.width, max(1, round(image.height * width / height)))
    crop_height = min(image.height, max(1, round(image.width * height / width)))
    # Whole pixels, so that a crop which needs no resizing stays exact.
    left, top = (image.width - crop_width) // 2, (image.height - crop_height) // 2
    box = (left, top, left + crop_width, top + crop_height)
    # The mean of the covered area when shrinking; enlarged, that filter would show blocks.
    shrinks = crop_width >= width
    method = Image.Resampling.BOX if shrinks else Image.Resampling.BILINEAR
    if image.mode.startswith("I"):  # 16 bits, which convert() would cut off instead of scaling
        image = Image.fromarray((np.asarray(image, np.uint32) // 257).clip(0, 255).astype(np.uint8))
    return np.array(image.convert("RGB").resize((width, height), method, box), dtype=np.uint8)


def write_bank(
    out: Path,
    clips: Iterable[Footage],
    split: Splitter,
    *,
    kind: str,
    size: int,
    overwrite: bool = False,
) -> ClipBank:
    """Write a bank to ``out``: whole, or not at all.

    Args:
        out: the bank's folder; missing or empty, or with ``overwrite`` an earlier bank.
        clips: the clips in order, streamed; a clip without frames is left out.
        split: says which split each clip is in, once it is known which had frames.
        kind: "videos" or "synthetic".
        size: side S of the frames.
        overwrite: replace an earlier bank, which stays in place until the new one is whole.
    """
    check_out(out, overwrite)
    out = out.resolve()
    with _as_user_error(out), replacing_folder(out) as temp:
        _fill(temp, clips, split, kind, size)
        publish_folder(temp, out, replace=overwrite)
    return ClipBank.open(out)


def check_out(out: Path, overwrite: bool) -> None:
    """Refuse to write a bank over anything but nothing, or with ``overwrite`` an earlier bank."""
    with _as_user_error(out):
        if not out.exists():
            return
        if not out.is_dir():
            raise UserError(f"{out} is a file: choose a folder that does not exist yet")
        names = {path.name for path in out.iterdir()}
    if not names:
        return
    # Replacing removes the folder: it must hold nothing but what we wrote.
    ours = names == {FRAMES, MANIFEST}
    try:
        _read_manifest(out)
    except (UserError, ValueError, OSError):
        ours = False
    if not ours:
        raise UserError(f"{out} is not empty and not a clip bank: choose another folder")
    if not overwrite:
        raise UserError(
            f"{out} holds a clip bank already: choose another folder, or pass --overwrite"
        )


def _read_manifest(folder: Path) -> tuple[str, int, tuple[Clip, ...], str]:
    if not folder.is_dir():
        raise UserError(f"there is no clip bank {folder}: {_HOW}")
    if not (folder / MANIFEST).is_file():
        raise UserError(f"{folder} is not a clip bank (it has no {MANIFEST}): {_HOW}")
    try:
        data = read_json(folder / MANIFEST, within=folder)
        clips = tuple(Clip(**entry) for entry in data["clips"])
        version, kind, size = data["format"], data["kind"], data["size"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{MANIFEST} does not parse: {error!r}") from error
    if version != FORMAT:
        raise ValueError(f"{MANIFEST} has format {version!r}, this sibe reads {FORMAT}")
    known = isinstance(kind, str) and kind in KINDS
    if not clips or not known or type(size) is not int or not 1 <= size <= MAX_SIZE:
        raise ValueError(f"{MANIFEST} lacks clips, a known kind or a size")
    start = 0
    for clip in clips:
        texts = all(isinstance(text, str) for text in (clip.source, clip.sha256, clip.split))
        counts = type(clip.start) is int and type(clip.frames) is int and clip.frames > 0
        if not texts or not counts or clip.start != start or clip.split not in SPLITS:
            raise ValueError(f"{MANIFEST} does not add up at clip {str(clip.source)[:100]!r}")
        start += clip.frames
    # An older version wrote no checksums.
    sha256, frames_sha256 = data.pop("sha256", None), data.get("frames_sha256", "")
    if sha256 is not None and sha256 != digest(data):
        raise ValueError(f"the checksum of {MANIFEST} is wrong")
    return kind, size, clips, frames_sha256


def _fill(folder: Path, footage: Iterable[Footage], split: Splitter, kind: str, size: int) -> None:
    clips: list[Clip] = []
    start, checksum = 0, hashlib.sha256()
    with (folder / FRAMES).open("wb") as file:
        for source, sha256, frames in footage:
            count = 0
            for frame in frames:
                if frame.shape != (size, size, 3) or frame.dtype != np.uint8:
                    raise ValueError(f"{source}: {frame.dtype} {frame.shape} in a bank of {size}")
                file.write(data := frame.tobytes())
                checksum.update(data)
                count += 1
            if count:
                clips.append(Clip(source, sha256, start, count, ""))
                start += count
        _sync(file)
    splits = split([clip.source for clip in clips])
    if not clips:
        raise ValueError("a bank needs a frame")
    entries = [c._replace(split=s)._asdict() for c, s in zip(clips, splits, strict=True)]
    manifest: dict[str, Any] = {"format": FORMAT, "kind": kind, "size": size, "clips": entries}
    manifest["frames_sha256"] = checksum.hexdigest()
    manifest["sha256"] = digest(manifest)
    with (folder / MANIFEST).open("w", encoding="utf-8") as text:
        json.dump(manifest, text, indent=1)
        _sync(text)


def _sync(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _as_user_error(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write the clip bank {out} ({reason}): choose another") from error
