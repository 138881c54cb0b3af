"""From a folder of videos to a bank of clips (``sibe videos prepare FOLDER --out BANK``).

A clip is a video file, or a folder of images in order as in DAVIS. Whatever cannot be read is
named and left out; what can be read in part is kept in part. Every frame is center-cropped to a
square and resized once, here, so that training reads raw pixels and needs no codec. PyAV is
needed for video files only, and only here: it is the extra ``sibe[video]``.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sibe.envs.backgrounds.clips import ClipBank, Footage, check_out, fit, write_bank
from sibe.envs.tasks import MAX_SIZE
from sibe.errors import UserError, printable
from sibe.storage.contained_file import open_file

VIDEOS = frozenset({".mp4", ".avi", ".webm", ".mkv", ".mov", ".gif", ".m4v", ".mpg"})
IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp"})
EVAL_FOLDERS = frozenset({"eval", "val", "test"})
_LARGEST = 1 << 36  # bytes of a video
THREADS = 2  # each holds frames of its own, and more gain little on small videos

Report = Callable[[str], None]
Frames = Generator[NDArray[np.uint8], None, None]


class Source(NamedTuple):
    """What one clip is read from: a video, or the images of one folder in order."""

    name: str
    files: tuple[Path, ...]


def prepare(
    folder: Path,
    out: Path,
    *,
    size: int = 84,
    eval_fraction: float = 0.25,
    max_frames: int | None = None,
    gray: bool = False,
    overwrite: bool = False,
    report: Report = print,
) -> ClipBank:
    """Decode every clip below ``folder`` into a new bank at ``out``.

    Args:
        folder: searched with its sub-folders. If it has a folder ``train`` and a folder ``eval``
            (or ``val``, ``test``), these are the splits.
        out: the bank's folder.
        size: side of the square frames, in pixels.
        eval_fraction: share of the clips kept for evaluation, if the folders do not say.
        max_frames: at most so many frames of each clip, from its beginning.
        gray: keep the luminance only, as DBC's protocol does: a robot then stands out by its color.
        overwrite: replace a bank that is at ``out`` already.
        report: called with a line for each clip that is skipped or cut short, and a summary.
    """
    say = report
    report = lambda line: say(printable(line))  # noqa: E731  it names files
    _check_numbers(size, eval_fraction, max_frames)
    check_out(out, overwrite)
    folder = folder.resolve()
    sources = find_sources(folder, report)
    by_folder = _has_split_folders(folder)
    for source in [s for s in sources if by_folder and not _folder_split(s.name)]:
        report(f"skipped {source.name}: it is in none of the folders of the splits")
        sources.remove(source)
    footage = _footage(sources, size, max_frames, gray, report)
    split = partial(_split, folder, None if by_folder else eval_fraction, report)
    bank = write_bank(out, footage, split, kind="videos", size=size, overwrite=overwrite)
    counts = f"{len(bank.clips('train'))} train, {len(bank.clips('eval'))} eval"
    report(f"{out}: {len(bank)} frames of {size}×{size} pixels; clips: {counts}")
    return bank


def _check_numbers(size: int, eval_fraction: float, max_frames: int | None) -> None:
    if not 1 <= size <= MAX_SIZE:
        raise UserError(f"a size of {size} pixels does not work: give 1 to {MAX_SIZE}")
    if not 0 < eval_fraction < 1:
        raise UserError(f"an eval fraction of {eval_fraction} leaves a split empty: try 0.25")
    if max_frames is not None and max_frames < 1:
        raise UserError(f"at most {max_frames} frames leaves none: give 1 or more, or no limit")


def find_sources(folder: Path, report: Report) -> list[Source]:
    """Return the videos and the folders of two images or more below ``folder``, by path."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: give the one that holds the videos")
    found: list[tuple[Path, tuple[Path, ...]]] = []
    # Large datasets are often linked in, and links can go round in circles.
    visited: set[str] = set()
    for parent, folders, names in os.walk(
        folder, onerror=lambda e: report(f"skipped {e.filename}: {e.strerror}"), followlinks=True
    ):
        if (real := os.path.realpath(parent)) in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = sorted(name for name in folders if name[0] != ".")
        files = [Path(parent, name) for name in names if name[0] != "."]
        found += [(file, (file,)) for file in files if file.suffix.lower() in VIDEOS]
        images = sorted((f for f in files if f.suffix.lower() in IMAGES), key=_in_time)
        found += [(Path(parent), tuple(images))] if len(images) >= 2 else []
    if not found:
        kinds = ", ".join(sorted(VIDEOS | IMAGES))
        raise UserError(f"{folder} holds no video and no folder of images ({kinds}): add some")
    return [Source(_name(path, folder), files) for path, files in sorted(found)]


def _in_time(file: Path) -> list[str | int]:
    # Frame 10 comes after frame 9, padded with zeros or not.
    return [int(s) if i % 2 else s for i, s in enumerate(re.split(r"(\d+)", file.name))]


def _name(path: Path, folder: Path) -> str:
    name = folder.name if path == folder else path.relative_to(folder).as_posix()
    return os.fsencode(name).decode(errors="replace")  # file names need not be valid text


def _has_split_folders(folder: Path) -> bool:
    names = {path.name.lower() for path in folder.iterdir() if path.is_dir()}
    return "train" in names and bool(names & EVAL_FOLDERS)


def _folder_split(name: str) -> str:
    top = name.lower().split("/")[0]
    return "train" if top == "train" else "eval" if top in EVAL_FOLDERS else ""


def _split(folder: Path, share: float | None, report: Report, names: Sequence[str]) -> list[str]:
    if not names:
        raise UserError(f"no clip in {folder} can be read: give videos that a player can play")
    if share:
        if len(names) == 1:
            report(f"{names[0]} is the only clip: training and evaluation share it")
        return spread_splits(len(names), share)
    splits = [_folder_split(name) for name in names]
    if len(set(splits)) == 1:
        raise UserError(f"only {splits[0]} clips in {folder} can be read: add some of the other")
    return splits


def spread_splits(count: int, eval_fraction: float) -> list[str]:
    """Return ``count`` splits, about ``eval_fraction`` of them "eval", evenly spread."""
    chosen = min(max(round(count * eval_fraction), 1), count - 1)
    places = {(2 * i + 1) * count // (2 * chosen) for i in range(chosen)}
    return ["eval" if i in places else "train" for i in range(count)]


def _footage(
    sources: Sequence[Source], size: int, limit: int | None, gray: bool, report: Report
) -> Iterator[Footage]:
    for number, source in enumerate(sources, 1):
        try:
            sha256 = _sha256(source.files)
        except (OSError, UserError) as error:
            report(f"skipped {source.name}: {getattr(error, 'strerror', error)}")
            continue
        frames = _frames(source, size, limit, report)
        yield Footage(source.name, sha256, map(luminance, frames) if gray else frames)
        if number % 50 == 0:
            report(f"{number} of {len(sources)} clips read")


def luminance(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the ITU-R 601 luminance in all three channels: uint8 [H, W, 3] -> [H, W, 3]."""
    gray = np.asarray(Image.fromarray(frame).convert("L"))
    return np.repeat(gray[..., None], 3, axis=-1)


def _sha256(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        # The folder is the user's own, so links are followed, but a pipe would wait for ever.
        with open_file(path, within=None, limit=_LARGEST) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _frames(source: Source, size: int, limit: int | None, report: Report) -> Frames:
    """Yield the frames of a clip, uint8 [size, size, 3], then report what could not be read."""
    damage: list[str] = []
    read = _read_images if source.files[0].suffix.lower() in IMAGES else _read_video
    kept = 0
    with closing(read(source.files, size, damage)) as frames:
        for frame in islice(frames, limit):
            yield frame
            kept += 1
    if not kept:
        report(f"skipped {source.name}: {damage[0] if damage else 'there is no frame in it'}")
    elif damage:
        report(f"{source.name}: only {kept} frames can be read ({damage[-1]})")


def _read_images(files: Sequence[Path], size: int, damage: list[str]) -> Frames:
    for file in files:
        try:
            with Image.open(file) as image:
                frame = fit(image, size, size)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            damage.append(f"{file.name}: {error}")
        else:
            yield frame


def _read_video(files: Sequence[Path], size: int, damage: list[str]) -> Frames:
    try:
        import av
    except ImportError as error:
        raise UserError("videos are read with PyAV: pip install 'sibe[video]'") from error
    count = announced = 0
    options = {"protocol_whitelist": "file"}  # keeps a playlist in disguise off the network
    try:
        with av.open(str(files[0]), options=options, metadata_errors="ignore") as container:
            if not container.streams.video:
                raise ValueError("there is no video in it")
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise ValueError("its codec is unknown")
            stream.thread_type, stream.codec_context.thread_count = "AUTO", THREADS
            for packet in container.demux(stream):
                for frame in _decode(packet, damage):
                    yield _square(frame, size)
                    count += 1
            announced = stream.frames
            if not announced and container.duration and stream.average_rate:
                # Containers that do not count tell how long they last, and the rate is a guess.
                announced = int(0.9 * container.duration / av.time_base * stream.average_rate)
    except (av.error.FFmpegError, ValueError) as error:
        damage.append(getattr(error, "strerror", None) or str(error))
    if count < announced:
        damage.append(f"{announced} or more announced")


def _decode(packet: Any, damage: list[str]) -> list[Any]:
    """Return the whole frames of a packet; a broken packet does not end the clip."""
    import av

    try:
        frames = packet.decode()
    except av.error.FFmpegError as error:
        damage.append(error.strerror)
        return []
    damage += ["broken frames" for frame in frames if frame.is_corrupt]
    return [frame for frame in frames if not frame.is_corrupt]


def _square(frame: Any, size: int) -> NDArray[np.uint8]:
    """Shrink the shorter side of a decoded frame to ``size`` and cut the middle of the longer."""
    scale = size / min(frame.width, frame.height)
    width, height = (max(size, round(side * scale)) for side in (frame.width, frame.height))
    image = frame.reformat(width, height, format="rgb24", interpolation="AREA").to_ndarray()
    top, left = (height - size) // 2, (width - size) // 2
    return np.asarray(image[top : top + size, left : left + size], np.uint8)
