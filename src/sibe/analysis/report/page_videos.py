"""Evaluation videos inside the page: as many as fit, one of each method, setting and task first."""

from __future__ import annotations

from typing import NamedTuple

from sibe.analysis.comparison import Study, setting_name
from sibe.analysis.runs import Run
from sibe.errors import UserError
from sibe.storage.contained_file import read_file

LARGEST = 4_000_000
"""bytes of one video"""
TOTAL = 24_000_000
"""bytes of all videos: a page of some 35 MB still opens at once"""


class Video(NamedTuple):
    """An mp4 file and what is written below it."""

    caption: str
    data: bytes


class Videos(NamedTuple):
    """What the page shows, and how many videos did not fit."""

    shown: list[Video]
    left_out: int
    largest: int
    total: int


def page_videos(study: Study, *, largest: int = LARGEST, total: int = TOTAL) -> Videos:
    """Return the newest video of each run, until ``total`` bytes; the rest is counted."""
    shown: list[Video] = []
    room, left_out = total, 0
    for run in _order(study):
        try:
            data = read_file(run.videos[-1], within=run.path, limit=min(largest, room))
        except (OSError, UserError):
            left_out += 1
            continue
        room -= len(data)
        shown.append(Video(_caption(run, study.variant_of[run.name].label), data))
    return Videos(shown, left_out, largest, total)


def _order(study: Study) -> list[Run]:
    """Return the runs with videos: the first seed of everything, then the second, …"""
    seen: dict[tuple[str, str, str], int] = {}
    rank = {}
    for run in sorted(study.runs, key=lambda run: run.seed):
        if run.videos:
            place = (study.variant_of[run.name].key, run.background, run.task)
            rank[run.name] = seen[place] = seen.get(place, -1) + 1
    labels = [variant.label for variant in study.variants]
    return sorted(
        (run for run in study.runs if run.name in rank),
        key=lambda run: (
            rank[run.name],
            study.backgrounds.index(run.background),
            run.task,
            labels.index(study.variant_of[run.name].label),
        ),
    )


def _caption(run: Run, label: str) -> str:
    setting = setting_name(run.background).lower()
    return f"{label}, {run.task}, {setting}, seed {run.seed}, {run.reached} env steps"
