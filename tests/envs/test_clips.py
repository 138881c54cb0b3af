from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import pickle
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sibe.envs.backgrounds import synthetic
from sibe.envs.backgrounds.clips import FRAMES, MANIFEST, ClipBank, Footage, fit, write_bank
from sibe.envs.backgrounds.decode import prepare, spread_splits
from sibe.envs.backgrounds.synthetic import synthetic_bank
from sibe.errors import UserError
from sibe.storage.json_file import digest
from sibe.storage.temporary_folder import temporary_folder

COLORS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (0, 255, 255), (255, 0, 255)]
# Suffix, encoder, pixel format; all of these wheels' encoders but the last are always there.
CODECS = [
    (".mp4", "libx264", "yuv420p"),
    (".mov", "mpeg4", "yuv420p"),
    (".AVI", "mpeg4", "yuv420p"),
    (".mkv", "libx264", "yuv420p"),
    (".gif", "gif", "rgb8"),
    (".webm", "libvpx", "yuv420p"),
]
CODECS = [codec for codec in CODECS if codec[1] in av.codecs_available]


def picture(color: Sequence[int]) -> np.ndarray:
    """64 × 96: color above black, between white bars that a center crop must cut off."""
    image = np.zeros((64, 96, 3), np.uint8)
    image[:32] = color
    image[:, :16] = image[:, -16:] = 255
    return image


def write_video(
    path: Path, codec: str = "mpeg4", pixels: str = "yuv420p", frames: int = 6, **options: str
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 96, 64, pixels
        if pixels == "yuv420p":
            stream.bit_rate = 4_000_000
        for i in range(frames):
            image = picture(COLORS[i % len(COLORS)])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def write_images(folder: Path, images: Iterable[np.ndarray], name: str = "{:05d}.png") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / name.format(i))


def ignore(line: str) -> None:
    pass


def noise(count: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def small_bank(out: Path, size: int = 8, **kwargs: bool) -> tuple[ClipBank, np.ndarray]:
    frames = noise(5, size, size, 3)
    clips = [Footage("a", "0" * 64, frames[:3]), Footage("b", "1" * 64, frames[3:])]
    splits = {"a": "train", "b": "eval"}
    bank = write_bank(
        out, clips, lambda names: [splits[n] for n in names], kind="videos", size=size, **kwargs
    )
    return bank, frames


def frames_of(bank: ClipBank, source: str) -> np.ndarray:
    clips = {clip.source: clip for split in ("train", "eval") for clip in bank.clips(split)}
    clip = clips[source]
    return np.stack([bank.frame(clip.start + t, bank.size, bank.size) for t in range(clip.frames)])


# --- the bank


def test_frames_come_back_as_written(tmp_path: Path) -> None:
    small_bank(tmp_path / "bank")
    bank, frames = ClipBank.open(tmp_path / "bank"), noise(5, 8, 8, 3)
    assert len(bank) == 5
    assert [(c.source, c.start, c.frames) for c in bank.clips("train")] == [("a", 0, 3)]
    assert [(c.source, c.start, c.frames) for c in bank.clips("eval")] == [("b", 3, 2)]
    for i in range(5):
        assert np.array_equal(bank.frame(i, 8, 8), frames[i])
    for i in (-1, 5):
        with pytest.raises(IndexError):
            bank.frame(i, 8, 8)
    with pytest.raises(ValueError, match="test"):
        bank.clips("test")
    bank.frame(0, 8, 8)[:] = 0  # a copy: the bank stays as it is
    assert np.array_equal(bank.frame(0, 8, 8), frames[0])


def test_manifest_on_disk(tmp_path: Path) -> None:
    small_bank(tmp_path / "bank")
    assert {path.name for path in (tmp_path / "bank").iterdir()} == {FRAMES, MANIFEST}
    frames = noise(5, 8, 8, 3).tobytes()
    manifest = json.loads((tmp_path / "bank" / MANIFEST).read_text())
    assert manifest.pop("sha256") == digest(manifest)
    assert manifest == {
        "format": 1,
        "kind": "videos",
        "size": 8,
        "clips": [
            {"source": "a", "sha256": "0" * 64, "start": 0, "frames": 3, "split": "train"},
            {"source": "b", "sha256": "1" * 64, "start": 3, "frames": 2, "split": "eval"},
        ],
        "frames_sha256": hashlib.sha256(frames).hexdigest(),
    }
    assert (tmp_path / "bank" / FRAMES).read_bytes() == frames


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    small_bank(tmp_path / "bank")
    manifest, frames = tmp_path / "bank" / MANIFEST, tmp_path / "bank" / FRAMES
    text = manifest.read_text()
    manifest.write_text(text.replace('"source": "a"', '"source": "c"'))
    with pytest.raises(UserError, match=f"the checksum of {MANIFEST} is wrong"):
        ClipBank.open(tmp_path / "bank")
    manifest.write_text(text)
    data = bytearray(frames.read_bytes())
    data[7] ^= 1
    frames.write_bytes(data)
    bank = ClipBank.open(tmp_path / "bank")
    with pytest.raises(UserError, match=f"the checksum of {FRAMES} is wrong"):
        bank.verify()


def test_a_bank_of_an_older_version_has_no_checksums(tmp_path: Path) -> None:
    small_bank(tmp_path / "bank")
    path = tmp_path / "bank" / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["sha256"], manifest["frames_sha256"]
    path.write_text(json.dumps(manifest))
    ClipBank.open(tmp_path / "bank").verify()


def test_other_sizes_are_crops_of_means(tmp_path: Path) -> None:
    bank, frames = small_bank(tmp_path / "bank")
    mean = frames[1].reshape(4, 2, 4, 2, 3).mean((1, 3))
    assert np.abs(bank.frame(1, 4, 4) - mean).max() <= 1  # Pillow rounds twice
    # Twice as wide as high: the middle rows; the other way round: the middle columns.
    assert np.array_equal(bank.frame(1, 4, 8), frames[1][2:6])
    assert np.array_equal(bank.frame(1, 8, 4), frames[1][:, 2:6])
    wide = frames[1][2:6].reshape(2, 2, 4, 2, 3).mean((1, 3))
    assert np.abs(bank.frame(1, 2, 4) - wide).max() <= 1  # Pillow rounds twice
    assert bank.frame(1, 20, 13).shape == (20, 13, 3)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_fit_always_fits(height: int, width: int, to_height: int, to_width: int) -> None:
    image = np.full((height, width, 3), (10, 120, 250), np.uint8)
    fitted = fit(Image.fromarray(image), to_height, to_width)
    assert fitted.shape == (to_height, to_width, 3)
    assert (fitted == (10, 120, 250)).all()


def test_images_of_16_bits_are_scaled_to_8() -> None:
    ramp = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    found = fit(Image.fromarray(ramp), 16, 16)
    assert np.array_equal(found[..., 0].ravel(), np.arange(256))
    assert np.array_equal(found[..., 1], found[..., 0])


def test_pickle_carries_no_frames(tmp_path: Path) -> None:
    bank, frames = small_bank(tmp_path / "bank", size=64)
    data = pickle.dumps(bank)
    assert len(data) < 1000 < frames.nbytes
    for method in ("spawn", "fork"):
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
            there = pool.submit(bank.frame, 4, 64, 64).result()
        assert np.array_equal(there, frames[4])


def test_missing_folder_or_manifest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no clip bank .*sibe videos prepare FOLDER --out BANK"):
        ClipBank.open(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"not a clip bank .*sibe videos prepare FOLDER --out BANK"):
        ClipBank.open(tmp_path)


GOOD = {"source": "a", "sha256": "0", "start": 0, "frames": 5, "split": "train"}


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        json.dumps({"format": 1, "kind": "videos", "size": 8}),
        json.dumps({"format": 2, "kind": "videos", "size": 8, "clips": [GOOD]}),
        json.dumps({"format": 1, "kind": "films", "size": 8, "clips": [GOOD]}),
        json.dumps({"format": 1, "kind": "videos", "size": "8", "clips": [GOOD]}),
        json.dumps({"format": 1, "kind": "videos", "size": -8, "clips": [GOOD]}),
        json.dumps({"format": 1, "kind": "videos", "size": 9, "clips": [GOOD]}),
        json.dumps({"format": 1, "kind": "videos", "size": 8, "clips": []}),
        json.dumps({"format": 1, "kind": "videos", "size": 8, "clips": [GOOD, GOOD]}),
        json.dumps({"format": 1, "kind": "videos", "size": 8, "clips": [{**GOOD, "frames": 4}]}),
        json.dumps({"format": 1, "kind": "videos", "size": 8, "clips": [{**GOOD, "start": 0.0}]}),
        json.dumps({"format": 1, "kind": "videos", "size": 8, "clips": [{**GOOD, "split": "x"}]}),
        json.dumps({"format": 1, "kind": "videos", "size": 8, "clips": [{**GOOD, "more": 1}]}),
        json.dumps({"format": 1, "kind": "videos", "size": 8, "clips": [{"source": "a"}]}),
        json.dumps({"format": 1, "kind": "videos", "size": 8, "clips": [{**GOOD, "source": {}}]}),
        json.dumps({"format": 1, "kind": "videos", "size": 8, "clips": [{**GOOD, "sha256": 1}]}),
        json.dumps({"format": 1, "kind": ["videos"], "size": 8, "clips": [GOOD]}),
        json.dumps({"format": 1, "kind": "videos", "size": 10**9, "clips": [GOOD]}),
        json.dumps({"format": 1, "kind": "videos", "size": float("inf"), "clips": [GOOD]}),
        json.dumps({"format": 1, "kind": "videos", "size": 8, "clips": [{**GOOD, "split": []}]}),
    ],
)
def test_damaged_manifest_is_refused(tmp_path: Path, manifest: str) -> None:
    small_bank(tmp_path / "bank")
    (tmp_path / "bank" / MANIFEST).write_text(manifest)
    with pytest.raises(UserError, match=r"damaged .*sibe videos prepare"):
        ClipBank.open(tmp_path / "bank")


@pytest.mark.parametrize("size", [None, 0, 5 * 8 * 8 * 3 - 1, 5 * 8 * 8 * 3 + 1])
def test_damaged_frames_are_refused(tmp_path: Path, size: int | None) -> None:
    small_bank(tmp_path / "bank")
    frames = tmp_path / "bank" / FRAMES
    frames.unlink() if size is None else frames.write_bytes(bytes(size))
    with pytest.raises(UserError, match="damaged"):
        ClipBank.open(tmp_path / "bank")


@pytest.mark.parametrize("name", [FRAMES, MANIFEST])
def test_links_out_of_a_bank_are_refused(tmp_path: Path, name: str) -> None:
    small_bank(tmp_path / "bank")
    (tmp_path / "bank" / name).rename(tmp_path / "elsewhere")
    (tmp_path / "bank" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=f"{name} is a link that leads out of"):
        ClipBank.open(tmp_path / "bank")
    (tmp_path / "bank" / name).unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "bank" / name)
    (tmp_path / "link").symlink_to(tmp_path / "bank")
    assert len(ClipBank.open(tmp_path / "link")) == 5


# --- writing


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, error: BaseException, earlier: bool
) -> None:
    out = tmp_path / "bank"
    if earlier:
        small_bank(out)

    def frames() -> Iterator[np.ndarray]:
        yield np.zeros((8, 8, 3), np.uint8)
        raise error

    with pytest.raises(type(error)):
        write_bank(
            out,
            [Footage("a", "", frames())],
            lambda names: ["train"],
            kind="videos",
            size=8,
            overwrite=True,
        )
    assert [path.name for path in tmp_path.iterdir()] == (["bank"] if earlier else [])
    if earlier:
        assert len(ClipBank.open(out)) == 5


def test_the_earlier_bank_returns_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_bank(tmp_path / "bank")
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise PermissionError(errno.EACCES, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(UserError, match="Permission denied"):
        small_bank(tmp_path / "bank", size=16, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]
    assert ClipBank.open(tmp_path / "bank").size == 8


def test_what_killed_writers_left_is_cleaned_up(tmp_path: Path) -> None:
    small_bank(tmp_path / "bank")
    (tmp_path / "bank").rename(tmp_path / ".bank.01234567.old")  # killed while it was replaced
    (tmp_path / ".bank.01234567.tmp" / "below").mkdir(parents=True)
    (tmp_path / ".other.01234567.tmp").mkdir()
    with temporary_folder(tmp_path, ".bank.") as used:
        with pytest.raises(UserError, match="cannot write the clip bank"):
            small_bank(tmp_path / "bank")  # the earlier one is back
        assert len(ClipBank.open(tmp_path / "bank")) == 5
        small_bank(tmp_path / "bank", size=16, overwrite=True)
        left = sorted(path.name for path in tmp_path.iterdir())
        assert left == sorted((".other.01234567.tmp", used.name, "bank"))
    assert ClipBank.open(tmp_path / "bank").size == 16


def test_full_disk_is_a_user_error(tmp_path: Path) -> None:
    def frames() -> Iterator[np.ndarray]:
        raise OSError(errno.ENOSPC, "No space left on device")
        yield

    with pytest.raises(UserError, match="No space left on device"):
        write_bank(tmp_path / "bank", [Footage("a", "", frames())], list, kind="videos", size=8)
    assert not list(tmp_path.iterdir())


def test_wrong_frames_are_refused(tmp_path: Path) -> None:
    wrong: list[np.ndarray] = [np.zeros((8, 9, 3), np.uint8), np.zeros((8, 8, 3))]
    for frame in wrong:
        with pytest.raises(ValueError, match="a bank of 8"):
            write_bank(tmp_path / "b", [Footage("a", "", [frame])], list, kind="videos", size=8)
    assert not list(tmp_path.iterdir())


def test_only_a_bank_is_overwritten_and_only_on_demand(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "bank"
    out.mkdir(parents=True)
    small_bank(out)  # an empty folder is as good as none
    with pytest.raises(UserError, match="already"):
        small_bank(out, size=16)
    assert small_bank(out, size=16, overwrite=True)[0].size == 16
    assert [path.name for path in out.parent.iterdir()] == ["bank"]

    (out / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="not empty"):
        small_bank(out, overwrite=True)
    (out / "thesis.tex").unlink()
    (out / MANIFEST).write_text("{}")
    with pytest.raises(UserError, match="not empty"):
        small_bank(out, overwrite=True)
    with pytest.raises(UserError, match="is a file"):
        small_bank(out / MANIFEST, overwrite=True)
    with pytest.raises(UserError, match="cannot write"):
        small_bank(out / MANIFEST / "below a file")


def test_a_bank_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    def frames() -> Iterator[np.ndarray]:
        small_bank(tmp_path / "bank")
        yield np.zeros((8, 8, 3), np.uint8)

    with pytest.raises(UserError, match="cannot write"):
        write_bank(
            tmp_path / "bank",
            [Footage("a", "", frames())],
            lambda names: ["train"],
            kind="videos",
            size=8,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["bank"]
    assert len(ClipBank.open(tmp_path / "bank")) == 5


# --- videos and images


@pytest.mark.parametrize(("suffix", "codec", "pixels"), CODECS)
def test_videos_decode_to_what_was_encoded(
    tmp_path: Path, suffix: str, codec: str, pixels: str
) -> None:
    write_video(tmp_path / "in" / f"clip{suffix}", codec, pixels)
    lines: list[str] = []
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=32, report=lines.append)
    frames = frames_of(bank, f"clip{suffix}").astype(int)
    assert len(frames) == len(COLORS) and bank.kind == "videos"
    for frame, color in zip(frames, COLORS, strict=True):
        # Away from the edges, which the codecs blur.
        assert np.abs(frame[2:13, 3:-3] - color).max() <= 16
        assert frame[19:-2, 3:-3].max() <= 16
    # One clip serves both splits, and is said to.
    assert bank.clips("eval") == bank.clips("train")
    assert len(lines) == 2 and "share" in lines[0] and "6 frames" in lines[1]


def test_a_small_video_is_enlarged(tmp_path: Path) -> None:
    write_video(tmp_path / "in" / "clip.mp4")
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=150, report=ignore)
    assert np.abs(bank.frame(1, 150, 150)[10:60, 10:-10].astype(int) - (0, 255, 0)).max() <= 16


def test_images_are_exact_and_in_order(tmp_path: Path) -> None:
    images = noise(12, 10, 15, 3)
    write_images(tmp_path / "in" / "davis" / "bear", images, name="frame{}.png")
    (tmp_path / "in" / "davis" / "bear" / "notes.txt").write_text("not an image")
    write_images(tmp_path / "in" / "lonely", images[:1])  # one image is no clip
    gray = noise(2, 10, 10)
    write_images(tmp_path / "in" / "gray", gray)
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=10, report=ignore)
    # frame10 comes after frame9.
    assert np.array_equal(frames_of(bank, "davis/bear"), images[:, :, 2:12])
    assert np.array_equal(frames_of(bank, "gray"), np.repeat(gray[..., None], 3, axis=3))
    assert len(bank) == 14


def test_images_shrink_to_means(tmp_path: Path) -> None:
    images = noise(2, 20, 20, 3)
    write_images(tmp_path / "in", images)
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=10, report=ignore)
    means = images.reshape(2, 10, 2, 10, 2, 3).mean((2, 4))
    assert np.abs(frames_of(bank, "in") - means).max() <= 1  # Pillow rounds twice


def test_gray_keeps_the_luminance_of_the_same_frames(tmp_path: Path) -> None:
    write_video(tmp_path / "in" / "a.mp4")
    write_video(tmp_path / "in" / "b.mp4")
    color = prepare(tmp_path / "in", tmp_path / "color", size=8, report=lambda _: None)
    gray = prepare(tmp_path / "in", tmp_path / "gray", size=8, gray=True, report=lambda _: None)
    assert len(gray) == len(color)
    for index in range(len(color)):
        seen = gray.frame(index, 8, 8)
        expected = color.frame(index, 8, 8).astype(float) @ (0.299, 0.587, 0.114)
        np.testing.assert_allclose(seen, np.repeat(expected[..., None], 3, -1), atol=1)


def test_max_frames_cuts_each_clip(tmp_path: Path) -> None:
    write_video(tmp_path / "in" / "a.mp4")
    write_images(tmp_path / "in" / "b", noise(5, 8, 8, 3))
    lines: list[str] = []
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=8, max_frames=4, report=lines.append)
    assert [clip.frames for s in ("train", "eval") for clip in bank.clips(s)] == [4, 4]
    assert len(lines) == 1


def test_hashes_are_of_the_files(tmp_path: Path) -> None:
    write_video(tmp_path / "in" / "a.mp4")
    write_images(tmp_path / "in" / "b", noise(11, 8, 8, 3), name="{}.png")
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=8, report=ignore)
    hashes = {c.source: c.sha256 for s in ("train", "eval") for c in bank.clips(s)}
    together = b"".join((tmp_path / "in" / "b" / f"{i}.png").read_bytes() for i in range(11))
    assert hashes == {
        "a.mp4": hashlib.sha256((tmp_path / "in" / "a.mp4").read_bytes()).hexdigest(),
        "b": hashlib.sha256(together).hexdigest(),
    }


def test_unreadable_files_are_named_and_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_video(folder / "good.mp4")
    write_images(folder / "part", noise(3, 8, 8, 3))
    (folder / "part" / "00001.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    write_images(folder / "rotten", noise(2, 8, 8, 3))
    for path in (folder / "rotten").iterdir():
        path.write_bytes(path.read_bytes()[:60])
    (folder / "text.mp4").write_text("this is no video\n" * 50)
    (folder / "empty.avi").touch()
    write_video(folder / "codec.mkv")
    video = (folder / "codec.mkv").read_bytes()
    (folder / "codec.mkv").write_bytes(video.replace(b"V_MPEG4", b"V_OTHER"))
    (folder / "cut.mkv").write_bytes((folder / "good.mp4").read_bytes()[:200])
    (folder / "dangling.mp4").symlink_to(folder / "gone.mp4")
    (folder / "._good.mp4").write_text("what a Mac leaves behind")
    with av.open(str(folder / "sound.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        silence.sample_rate = 44100
        container.mux(stream.encode(silence))
        container.mux(stream.encode())
    lines: list[str] = []
    bank = prepare(folder, tmp_path / "bank", size=8, report=lines.append)
    assert len(frames_of(bank, "good.mp4")) == 6
    assert np.array_equal(frames_of(bank, "part"), noise(3, 8, 8, 3)[[0, 2]])
    assert len(bank) == 8
    names = ["codec.mkv", "cut.mkv", "dangling.mp4", "empty.avi", "rotten", "sound.mp4", "text.mp4"]
    assert sorted(line.split(":")[0] for line in lines[:-1]) == sorted(
        ["part", *(f"skipped {name}" for name in names)]
    )
    assert not any("\n" in line for line in lines)
    assert "only 2 frames" in next(line for line in lines if line.startswith("part"))


@pytest.mark.parametrize(("suffix", "codec"), [(s, c) for s, c, _ in CODECS if s != ".gif"])
def test_a_truncated_video_keeps_its_readable_frames(
    tmp_path: Path, suffix: str, codec: str
) -> None:
    write_video(tmp_path / "whole" / f"a{suffix}", codec, frames=30, movflags="faststart")
    data = (tmp_path / "whole" / f"a{suffix}").read_bytes()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / f"a{suffix}").write_bytes(data[: len(data) * 6 // 10])
    lines: list[str] = []
    whole = prepare(tmp_path / "whole", tmp_path / "bank1", size=32, report=ignore)
    half = prepare(tmp_path / "half", tmp_path / "bank2", size=32, report=lines.append)
    assert len(whole) == 30 and 3 <= len(half) <= 25
    assert lines[0].startswith(f"a{suffix}: only {len(half)} frames can be read")
    for i in range(len(half)):
        assert np.abs(half.frame(i, 32, 32).astype(int) - whole.frame(i, 32, 32)).max() <= 16


def test_what_is_no_file_is_skipped_without_waiting(tmp_path: Path) -> None:
    write_video(tmp_path / "in" / "good.mp4")
    os.mkfifo(tmp_path / "in" / "pipe.mp4")
    (tmp_path / "in" / "zero.mp4").symlink_to("/dev/zero")
    (tmp_path / "in" / "huge.mp4").touch()
    os.truncate(tmp_path / "in" / "huge.mp4", 1 << 40)
    os.mkfifo(tmp_path / "in" / "\x1b[2Jpipe.mp4")
    lines: list[str] = []
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=8, report=lines.append)
    assert [clip.source for clip in bank.clips("train")] == ["good.mp4"]
    skipped = [line for line in lines if line.startswith("skipped")]
    assert len(skipped) == 4 and not any("\x1b" in line for line in lines)


def test_a_truncated_mp4_without_index_is_skipped(tmp_path: Path) -> None:
    write_video(tmp_path / "in" / "b.mp4")
    data = (tmp_path / "in" / "b.mp4").read_bytes()
    (tmp_path / "in" / "a.mp4").write_bytes(data[: len(data) // 2])
    lines: list[str] = []
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=8, report=lines.append)
    assert lines[0].startswith("skipped a.mp4: ") and [c.source for c in bank.clips("train")] == [
        "b.mp4"
    ]


def test_nothing_to_read(tmp_path: Path) -> None:
    out = tmp_path / "bank"
    folder = tmp_path / "in"
    with pytest.raises(UserError, match="not a folder"):
        prepare(folder, out)
    folder.mkdir()
    with pytest.raises(UserError, match="no video"):
        prepare(folder, out)
    (folder / "a.mp4").write_text("text")
    with pytest.raises(UserError, match="not a folder"):
        prepare(folder / "a.mp4", out)
    lines: list[str] = []
    with pytest.raises(UserError, match="can be read"):
        prepare(folder, out, report=lines.append)
    assert len(lines) == 1 and "a.mp4" in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0},
        {"size": -84},
        {"eval_fraction": 0.0},
        {"eval_fraction": 1.0},
        {"eval_fraction": float("nan")},
        {"max_frames": 0},
    ],
)
def test_wrong_numbers(tmp_path: Path, wrong: dict[str, Any]) -> None:
    write_images(tmp_path / "in", noise(2, 8, 8, 3))
    with pytest.raises(UserError, match=r"give|try"):
        prepare(tmp_path / "in", tmp_path / "bank", **wrong)
    assert not (tmp_path / "bank").exists()


def test_an_existing_bank_is_refused_before_any_work(tmp_path: Path) -> None:
    write_images(tmp_path / "in", noise(2, 8, 8, 3))
    small_bank(tmp_path / "bank")
    with pytest.raises(UserError, match="already"):
        prepare(tmp_path / "in", tmp_path / "bank", report=lambda line: pytest.fail(line))
    bank = prepare(tmp_path / "in", tmp_path / "bank", overwrite=True, report=ignore)
    assert bank.size == 84 and len(bank) == 2


def test_without_pyav(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    write_images(tmp_path / "in", noise(2, 8, 8, 3))
    assert len(prepare(tmp_path / "in", tmp_path / "bank", report=ignore)) == 2
    (tmp_path / "in" / "a.mp4").touch()
    with pytest.raises(UserError, match=r"pip install 'sibe\[video\]'"):
        prepare(tmp_path / "in", tmp_path / "other", report=ignore)
    assert not (tmp_path / "other").exists()


def test_links_are_followed_once(tmp_path: Path) -> None:
    write_images(tmp_path / "data", noise(2, 8, 8, 3))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "circle").symlink_to(tmp_path / "in")
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=8, report=ignore)
    assert [clip.source for clip in bank.clips("train")] == ["linked"]


# --- splits


@pytest.mark.parametrize("name", ["eval", "val", "test"])
def test_folders_decide_the_split(tmp_path: Path, name: str) -> None:
    for i, clip in enumerate(["train/a", "train/b/c", f"{name}/d", "stray"]):
        write_images(tmp_path / "in" / clip, noise(2, 8, 8, 3, seed=i))
    lines: list[str] = []
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=8, report=lines.append)
    assert [clip.source for clip in bank.clips("train")] == ["train/a", "train/b/c"]
    assert [clip.source for clip in bank.clips("eval")] == [f"{name}/d"]
    assert "stray" in lines[0]
    (tmp_path / "in" / name / "d" / "00000.png").unlink()
    with pytest.raises(UserError, match="only train clips"):
        prepare(tmp_path / "in", tmp_path / "bank", overwrite=True, report=ignore)
    assert len(ClipBank.open(tmp_path / "bank")) == 6


def test_otherwise_the_split_is_by_clip(tmp_path: Path) -> None:
    for i in range(8):
        write_images(tmp_path / "in" / f"clip{i}", noise(2, 8, 8, 3, seed=i))
    (tmp_path / "in" / "broken.mp4").touch()
    bank = prepare(tmp_path / "in", tmp_path / "bank", size=8, report=ignore)
    assert [clip.source for clip in bank.clips("eval")] == ["clip2", "clip6"]
    assert len(bank.clips("train")) == 6
    again = prepare(tmp_path / "in", tmp_path / "again", size=8, report=ignore)
    assert again.clips("eval") == bank.clips("eval")


@given(st.integers(1, 300), st.floats(0.001, 0.999))
def test_splits_are_spread(count: int, fraction: float) -> None:
    splits = spread_splits(count, fraction)
    chosen = [i for i, split in enumerate(splits) if split == "eval"]
    assert len(splits) == count and splits.count("train") + len(chosen) == count
    if count == 1:
        assert splits == ["train"]
        return
    assert 1 <= len(chosen) < count
    assert abs(len(chosen) - count * fraction) <= 1
    gaps = np.diff(chosen)
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1


# --- the generated bank


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> ClipBank:
    return synthetic_bank(tmp_path_factory.mktemp("cache"))


def movies(bank: ClipBank) -> Iterator[np.ndarray]:
    for split in ("train", "eval"):
        for clip in bank.clips(split):
            yield frames_of(bank, clip.source)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.mean(-1).ravel(), b.mean(-1).ravel())[0, 1])


def spectrum_slope(frames: np.ndarray) -> float:
    """Slope of the radially averaged power spectrum [T, S, S, 3] in doubly logarithmic axes."""
    gray = frames.mean(-1)
    side = gray.shape[1]
    window = np.outer(np.hanning(side), np.hanning(side))
    power = (np.abs(np.fft.fft2((gray - gray.mean((1, 2), keepdims=True)) * window)) ** 2).mean(0)
    k = np.fft.fftfreq(side) * side
    radius = np.rint(np.hypot(k[:, None], k)).astype(int)
    rings = np.arange(2, side // 2)
    mean = [power[radius == ring].mean() for ring in rings]
    return float(np.polyfit(np.log(rings), np.log(mean), 1)[0])


def test_generated_clips_are_labeled(generated: ClipBank) -> None:
    assert generated.kind == "synthetic" and generated.size == 84
    names = {split: [c.source for c in generated.clips(split)] for split in ("train", "eval")}
    assert names["train"] == [f"synthetic-train-{i:02d}" for i in range(8)]
    assert names["eval"] == [f"synthetic-eval-{i:02d}" for i in range(4)]
    assert all(c.frames == 250 for s in names for c in generated.clips(s))
    assert len({c.sha256 for s in names for c in generated.clips(s)}) == 12
    first = hashlib.sha256(frames_of(generated, "synthetic-train-00").tobytes()).hexdigest()
    assert generated.clips("train")[0].sha256 == first


def test_generated_clips_look_natural(generated: ClipBank) -> None:
    starts = []
    for movie in movies(generated):
        assert -3 < spectrum_slope(movie[::10]) < -1.4
        low, high = np.percentile(movie, [1, 99])
        assert low < 10 and high > 245 and 35 < movie.std() < 80
        red, green, blue = movie.reshape(-1, 3)[::11].T
        assert 0.8 < np.corrcoef(red, green)[0, 1] < 0.999
        assert 0.7 < np.corrcoef(red, blue)[0, 1] < 0.99
        starts.append(movie[0])
    between = [correlation(a, b) for i, a in enumerate(starts) for b in starts[:i]]
    assert max(between) < 0.6 and abs(np.mean(between)) < 0.1


def test_generated_clips_move_smoothly(generated: ClipBank) -> None:
    for movie in movies(generated):
        gray = movie.mean(-1).reshape(250, -1)
        gray -= gray.mean(1, keepdims=True)
        gray /= gray.std(1, keepdims=True)
        steps = (gray[1:] * gray[:-1]).mean(1)
        assert steps.min() > 0.9 and steps.max() < 0.9999
        assert (gray[:125] * gray[125:]).mean() < 0.4


def test_the_cache_is_used_again(generated: ClipBank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "movie", lambda rng: pytest.fail("generated again"))
    assert synthetic_bank(generated.folder.parent).clips("train") == generated.clips("train")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def make_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(synthetic, "FRAMES", 6)
    patch.setattr(synthetic, "CLIPS", {"train": 1, "eval": 1})


@pytest.mark.usefixtures("small")
def test_one_seed_one_movie() -> None:
    first, again, other = (synthetic.movie(np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.shape == (6, 84, 84, 3) and np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.usefixtures("small")
def test_a_leaf_is_painted_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "TEXTURE", 0)
    world, margin = synthetic.WORLD, synthetic.MARGIN
    sheet = np.zeros((3, world, world), np.float32)
    canvas = np.zeros((3, 8, world, world), np.float32)
    path = margin + np.array([[40, 40], [40.25, 41.5], [20.9, 30.1]])
    offsets, taps = synthetic._leaf(9.3, np.array([1.0, 2.0, 3.0]), np.array([5, 7]), sheet)
    synthetic._paint(canvas, offsets, taps, path, np.arange(3))
    grid = np.indices((world, world))
    for frame, center in zip(canvas[0, 1:4], path, strict=True):
        assert frame.sum() == pytest.approx(np.pi * 9.3**2, rel=0.02)
        assert (grid * frame).sum((1, 2)) / frame.sum() == pytest.approx(center, abs=1e-3)
        distance = np.hypot(*(grid - center[:, None, None]))
        assert frame[distance < 7.5].min() == pytest.approx(1, abs=1e-6)
        assert not frame[distance > 11.5].any()
    assert np.allclose(canvas[1:], canvas[:1] * np.array([2, 3])[:, None, None, None])
    assert not canvas[:, [0, 4, 5, 6, 7]].any()


@pytest.mark.usefixtures("small")
def test_what_leaves_the_picture_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "TEXTURE", 0)
    world, margin, size = synthetic.WORLD, synthetic.MARGIN, synthetic.SIZE
    sheet = np.zeros((3, world, world), np.float32)
    radius = synthetic.R_MAX
    grid = np.indices((size, size)) + margin
    corners = [margin - 30.5, margin + size + 29.5]
    for center in [np.array([y, x]) for y in corners for x in corners]:
        canvas = np.zeros((3, 8, world, world), np.float32)
        offsets, taps = synthetic._leaf(radius, np.ones(3), np.zeros(2, int), sheet)
        synthetic._paint(canvas, offsets, taps, np.tile(center, (6, 1)), np.arange(6))
        seen = canvas[:, 1:-1, margin : margin + size, margin : margin + size]
        distance = np.hypot(*(grid - center[:, None, None]))
        assert not seen[..., distance > radius + 2].any()
        assert (distance < radius - 2).any() == (seen[..., distance < radius - 2] > 0.99).any()


def test_pink_noise_has_power_one_over_f_squared() -> None:
    side = 128
    field = synthetic.pink_noise(np.random.default_rng(0), side)[0]
    k = np.fft.fftfreq(side) * side
    radius = np.hypot(k[:, None], k)
    whitened = np.abs(np.fft.fft2(field)) ** 2 * radius**2
    bands = [whitened[(radius >= a) & (radius < 2 * a)].mean() for a in (4, 8, 16, 32)]
    assert max(bands) / min(bands) < 1.3


def race(cache: Path, name: str) -> tuple[Path, int]:
    """Generate a small bank at the same time as another process does."""
    made, movie = 0, synthetic.movie

    def slow_movie(rng: np.random.Generator) -> np.ndarray:
        nonlocal made
        made += 1
        (cache.parent / name).touch()
        deadline = time.monotonic() + 30
        while len(list(cache.parent.glob("racer*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        return movie(rng)

    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        patch.setattr(synthetic, "movie", slow_movie)
        bank = synthetic_bank(cache)
        assert len(bank) == 12 and bank.frame(11, 84, 84).any()
        return bank.folder, made


def test_two_processes_may_generate_at_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        racers = [pool.submit(race, cache, f"racer{i}") for i in range(2)]
        folders, made = zip(*(racer.result() for racer in racers), strict=True)
    assert made == (2, 2)  # neither found the other's bank when it began
    assert list(cache.iterdir()) == [folders[0]] == [folders[1]]


@pytest.mark.usefixtures("small")
def test_the_cache_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"synthetic-v{synthetic.GENERATOR}"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert synthetic_bank().folder == tmp_path / "xdg" / "sibe" / name
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert synthetic_bank().folder == tmp_path / ".cache" / "sibe" / name


@pytest.mark.usefixtures("small")
def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set XDG_CACHE_HOME"):
        synthetic_bank()


@pytest.mark.usefixtures("small")
def test_a_damaged_cache_says_what_to_delete(tmp_path: Path) -> None:
    folder = synthetic_bank(tmp_path).folder
    (folder / FRAMES).write_bytes(b"")
    with pytest.raises(UserError, match=f"{folder.name} is damaged: delete it"):
        synthetic_bank(tmp_path)
