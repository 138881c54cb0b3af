"""`sibe videos prepare | list`: clip banks for the natural-video setting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from sibe.cli.parsing import Group
from sibe.errors import printable


@dataclass(frozen=True)
class PrepareVideos:
    """Decode a folder of videos into a clip bank that training can use without a codec."""

    folder: Positional[Path]
    """Folder of videos (mp4, avi, webm, gif, …) or of folders of images; sub-folders named train
    and eval decide the split."""
    out: Path
    """Folder to write the bank to."""
    size: int = 84
    """Height and width of the stored frames, in pixels."""
    eval_fraction: float = 0.25
    """Share of the clips kept for evaluation."""
    max_frames: int | None = None
    """Keep at most this many frames of each clip (default: all)."""
    gray: bool = False
    """Keep the luminance only, as in DBC's protocol."""
    overwrite: bool = False
    """Replace a bank that is already there."""

    def run(self) -> int:
        """Decode, and say what the bank holds."""
        from sibe.envs.backgrounds.decode import prepare
        from sibe.logs.amounts import count

        bank = prepare(
            self.folder,
            self.out,
            size=self.size,
            eval_fraction=self.eval_fraction,
            max_frames=self.max_frames,
            gray=self.gray,
            overwrite=self.overwrite,
        )
        for split in ("train", "eval"):
            clips = bank.clips(split)
            frames = count(sum(clip.frames for clip in clips), "frame")
            print(f"{split}: {count(len(clips), 'clip')}, {frames}")
        print(f"use it with --background video --clips {self.out}")
        return 0


@dataclass(frozen=True)
class ListVideos:
    """List the clips of a bank, once its frames were compared with their checksum."""

    bank: Positional[Path]
    """A folder made by `sibe videos prepare`."""

    def run(self) -> int:
        """Print one line per clip."""
        from sibe.envs.backgrounds.clips import ClipBank

        bank = ClipBank.open(self.bank)
        bank.verify()
        for clip in dict.fromkeys((*bank.clips("train"), *bank.clips("eval"))):
            print(f"{clip.split:5s} {clip.frames:6d} frames  {printable(clip.source)}")
        return 0


VIDEOS = Group(
    "Clip banks for the natural-video setting.", {"prepare": PrepareVideos, "list": ListVideos}
)
