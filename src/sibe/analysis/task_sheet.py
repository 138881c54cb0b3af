"""The paper's task figure: six tasks in three visual settings, as one labeled sheet."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sibe.envs.backgrounds.clips import ClipBank
from sibe.envs.factory import make_env
from sibe.envs.rendering.renderer import Frame
from sibe.envs.tasks import PAPER_BACKGROUNDS, PAPER_TASKS
from sibe.errors import UserError
from sibe.storage.atomic import write_atomic

_WARM_UP = 12  # agent steps of random actions, so that the robots are in motion
_TITLES = {
    "clean": "standard\n(clean)",
    "noise": "noisy\n(noise)",
    "video": "natural\n(video)",
}


def task_frame(task: str, background: str, *, clips: Path | None, size: int, seed: int) -> Frame:
    """Return a frame [size, size, 3] of a task in a setting, a few random steps into it."""
    env = make_env(task, background, size=size, stack=1, clips=clips)
    try:
        frame: Frame = env.reset(seed=seed)[0]
        rng = np.random.default_rng(seed)
        for _ in range(_WARM_UP):
            action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
            frame, *_ = env.step(action)
    finally:
        env.close()
    return frame


def write_task_sheet(path: Path, *, clips: Path | None, size: int, seed: int) -> None:
    """Write the sheet of six tasks × three settings to a PNG file."""
    if path.suffix.lower() != ".png":
        raise UserError(f"the picture must be a .png file, not {path.name!r}")
    if clips is not None:
        ClipBank.open(clips)  # a wrong one is told before twelve pictures are made
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(12.4, 6.3), layout="constrained")
    axes = figure.subplots(len(PAPER_BACKGROUNDS), len(PAPER_TASKS))
    for row, background in zip(axes, PAPER_BACKGROUNDS, strict=True):
        for column, (axis, task) in enumerate(zip(row, PAPER_TASKS, strict=True)):
            frame = task_frame(task, background, clips=clips, size=size, seed=seed + column)
            axis.imshow(frame, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            if background == "clean":
                axis.set_title(task, fontsize=10)
        row[0].set_ylabel(_TITLES[background], fontsize=11)
    if clips is None:
        figure.supxlabel("video: synthetic clips (no bank was given)", fontsize=8, color="gray")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100, format="png")
    write_atomic(path, drawn.getvalue())
