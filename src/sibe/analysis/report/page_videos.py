"""Evaluation videos inside the page: as many as fit, one of each method, setting and task first."""

from __future__ import annotations

import base64
from html import escape

from sibe.analysis.comparison import SETTINGS, Study
from sibe.analysis.runs import Run

LARGEST = 4_000_000
"""bytes of one video"""
TOTAL = 24_000_000
"""bytes of all videos: a page of some 35 MB still opens at once"""


def videos_html(study: Study, *, largest: int = LARGEST, total: int = TOTAL) -> str:
    """Return the newest video of each run, until ``total`` bytes; the rest is counted in a note."""
    parts, room, left_out = [], total, 0
    for run in _order(study):
        if not run.videos:
            continue
        try:
            data = run.videos[-1].read_bytes()
        except OSError:
            left_out += 1
            continue
        if len(data) > min(largest, room):
            left_out += 1
            continue
        room -= len(data)
        parts.append(_video(run, study.arm_of[run.name].label, data))
    if not parts and not left_out:
        return "<p>The runs have no videos.</p>"
    note = (
        f"<p>{left_out} more not shown: the page holds {total / 1e6:.0f} MB of videos, "
        f"{largest / 1e6:.0f} MB each at most. All are in the runs' video folders.</p>"
        if left_out
        else ""
    )
    return f"<div class=videos>{''.join(parts)}</div>{note}"


def _order(study: Study) -> list[Run]:
    """Return the first seed of everything, then the second, …"""
    seen: dict[tuple[str, str, str], int] = {}
    rank = {}
    for run in sorted(study.runs, key=lambda run: run.seed):
        if run.videos:
            place = (study.arm_of[run.name].key, run.background, run.task)
            rank[run.name] = seen[place] = seen.get(place, -1) + 1
    labels = [arm.label for arm in study.arms]
    return sorted(
        (run for run in study.runs if run.name in rank),
        key=lambda run: (
            rank[run.name],
            study.backgrounds.index(run.background),
            run.task,
            labels.index(study.arm_of[run.name].label),
        ),
    )


def _video(run: Run, label: str, data: bytes) -> str:
    setting = SETTINGS.get(run.background, run.background).lower()
    caption = escape(f"{label}, {run.task}, {setting}, seed {run.seed}, {run.reached} env steps")
    source = base64.b64encode(data).decode()
    return (
        "<figure><video controls loop muted playsinline preload=metadata "
        f"aria-label='{caption}' src='data:video/mp4;base64,{source}'></video>"
        f"<figcaption>{caption}</figcaption></figure>"
    )
