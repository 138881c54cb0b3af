"""A study: the runs of a report, sorted into variants, settings and tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sibe.analysis.runs import LeftOut, Run, read_runs
from sibe.analysis.variants import Variant, assign_variants
from sibe.envs.tasks import BACKGROUNDS, PAPER_TASKS

_SETTINGS = {
    "clean": "Standard",
    "noise": "White noise",
    "video": "Natural video",
    "video_random": "Natural video, random clips",
}


def setting_name(background: str) -> str:
    """Return what a background is called in tables and figures."""
    return _SETTINGS.get(background, background)


@dataclass(frozen=True)
class Study:
    """What a report is about; at least one run."""

    runs: list[Run]
    left_out: list[LeftOut]
    variants: list[Variant]
    """in the order in which they are shown"""
    variant_of: dict[str, Variant]
    """by a run's name"""

    @property
    def backgrounds(self) -> list[str]:
        """The settings that occur, in the paper's order."""
        return _ordered({run.background for run in self.runs}, BACKGROUNDS)

    def tasks(
        self, background: str | None = None, variants: Iterable[Variant] | None = None
    ) -> list[str]:
        """Return the tasks that occur (in a setting, for some variants), the paper's first."""
        keys = None if variants is None else {variant.key for variant in variants}
        found = {
            run.task
            for run in self.runs
            if (background is None or run.background == background)
            and (keys is None or self.variant_of[run.name].key in keys)
        }
        return _ordered(found, PAPER_TASKS)

    def select(self, variant: Variant, background: str, task: str) -> list[Run]:
        """Return the runs of one curve, by seed."""
        runs = [
            run
            for run in self.runs
            if (run.background, run.task) == (background, task)
            and self.variant_of[run.name] == variant
        ]
        return sorted(runs, key=lambda run: run.seed)


def load_study(roots: Sequence[Path]) -> Study:
    """Read all runs below ``roots``; of two with the same config and seed the longer is kept."""
    found, left_out = read_runs(roots)
    _, variant_of = assign_variants(found)
    kept: dict[tuple[str, str, str, int], Run] = {}
    for run in found:
        place = (variant_of[run.name].key, run.background, run.task, run.seed)
        other = kept.get(place)
        if other is None or run.reached > other.reached:
            kept[place] = run
            run, other = other or run, run
        if other is not None and other is not run:
            left_out.append(LeftOut(run.name, f"the same run as {other.name}, which went as far"))
    runs = sorted(kept.values(), key=lambda run: run.name)
    variants, variant_of = assign_variants(runs)
    return Study(runs, left_out, variants, variant_of)


def _ordered(found: set[str], first: Sequence[str]) -> list[str]:
    return [name for name in first if name in found] + sorted(found - set(first))
