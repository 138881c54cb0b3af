"""The suites as data: which tasks, backgrounds, variants and seeds make a grid of runs.

A suite names methods by name only, so it can be listed and sliced while a method is missing; a
config is built when a run is planned (`sibe.experiments.plan`). A variant is a method with some
fields of its config changed: the paper's ablations are rows of a table here, not code elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from sibe.envs.tasks import PAPER_TASKS
from sibe.errors import UserError, nearest


@dataclass(frozen=True)
class MethodVariant:
    """A method, and what is changed of its config by dotted names ("sac.chunk")."""

    name: str
    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """A grid of runs.

    ``threads`` is part of a run's config because the order of summation, and so the result,
    depends on it; 0 leaves it to the engine, which divides the machine among the runs.
    """

    name: str
    about: str
    preset: str
    tasks: tuple[str, ...]
    backgrounds: tuple[str, ...]
    variants: tuple[MethodVariant, ...]
    seeds: tuple[int, ...]
    threads: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)
    """what all its runs change of their preset, by dotted names"""

    def runs(self) -> list[SuiteRun]:
        """Return all runs, the first seed of everything before the second of anything."""
        grid = product(self.seeds, self.backgrounds, self.tasks, self.variants)
        return [
            SuiteRun(task, background, variant, seed) for seed, background, task, variant in grid
        ]


class SuiteRun(NamedTuple):
    """One cell of the grid."""

    task: str
    background: str
    variant: MethodVariant
    seed: int

    @property
    def directory(self) -> Path:
        """Where the run lives below the root: <task>-<background>/<variant>/seed<k>."""
        return Path(f"{self.task}-{self.background}") / self.variant.name / f"seed{self.seed}"


def _plain(*methods: str) -> tuple[MethodVariant, ...]:
    return tuple(MethodVariant(method, method) for method in methods)


_PAPER_METHODS = _plain("sibe", "proto", "db", "plan2explore", "rpc")
_SPARSE_TASKS = ("ball_in_cup_catch", "cartpole_swingup_sparse", "reacher_easy")
_FIVE = (1, 2, 3, 4, 5)
_COMPONENTS = (
    MethodVariant("sibe", "sibe"),
    MethodVariant("sibe-no-reward", "sibe", {"method_config.intrinsic": 0.0}),
    MethodVariant("sibe-no-compression", "sibe", {"method_config.alpha": 0.0}),
)
# "4 different chunk lengths": the text names 1 and 2, the other two are ours.
_CHUNKS = (
    *(MethodVariant(f"sibe-L{length}", "sibe", {"sac.chunk": length}) for length in (2, 1, 3, 4)),
    MethodVariant("sibe-L1-double", "sibe", {"sac.chunk": 1, "sac.method_batch": 2}),
)
_THREE = (1, 2, 3)
_RIVALS = _plain("db", "proto", "rpc", "disagreement", "icm", "rnd")
_STUDIED_ABLATIONS = (*_COMPONENTS[1:], *(v for v in _CHUNKS if v.changes["sac.chunk"] == 1))
_BOTH = {"env.sensors": ("pixels", "state")}
_SENSORS = (
    MethodVariant("sibe", "sibe"),
    MethodVariant("sibe-state", "sibe", {"env.sensors": ("state",)}),
    MethodVariant("sibe-both", "sibe", _BOTH),
    MethodVariant("sibe-both-dropout", "sibe", {**_BOTH, "env.sensor_dropout": 0.3}),
)
_TINY = {
    "schedule.env_steps": 2000,
    "schedule.initial_steps": 200,
    "schedule.eval_episodes": 1,
    "schedule.video": False,
}


def _paper(setting: str, background: str, about: str) -> Suite:
    return Suite(
        f"paper-{setting}", about, "paper", PAPER_TASKS, (background,), _PAPER_METHODS, _FIVE
    )


def _study(
    part: str,
    about: str,
    backgrounds: tuple[str, ...],
    variants: tuple[MethodVariant, ...],
    seeds: tuple[int, ...],
    *,
    task: str = "cartpole_swingup",
    changes: Mapping[str, Any] | None = None,
) -> Suite:
    return Suite(
        f"study-{part}", about, "cpu", (task,), backgrounds, variants, seeds, 1, changes or {}
    )


_PAIR = _plain("sibe", "none")
_CHROMA = {"encoder.chroma": True, "encoder.foreground": False}
_LONG = {"schedule.env_steps": 500_000}
_STUDY = (
    _study("main", "the cpu preset: SIBE against plain SAC", ("clean", "noise"), _PAIR, _FIVE),
    _study("video", "the same with video", ("video",), _PAIR, _FIVE),
    _study("random", "the same with a random clip per episode", ("video_random",), _PAIR, _THREE),
    _study("rivals", "the other methods", ("noise",), _RIVALS, _THREE),
    _study("rivals-video", "the same with video", ("video",), _RIVALS, _THREE),
    _study("ablations", "SIBE without its parts", ("noise",), _STUDIED_ABLATIONS, _THREE),
    _study("ball", "another task", ("noise",), _PAIR, _THREE, task="ball_in_cup_catch"),
    _study(
        "sensors",
        "pixels, proprioception, and both, also with readings dropped while learning",
        ("video",),
        _SENSORS,
        _THREE,
        task="reacher_easy",
        changes=_CHROMA,
    ),
    _study("long", "as long as the paper's runs", ("noise",), _PAIR, (1,), changes=_LONG),
    _study("long-video", "the same with video", ("video",), _PAIR, (1,), changes=_LONG),
)
SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        _paper("standard", "clean", "the paper's main grid on clean images"),
        _paper("noise", "noise", "the same with white noise behind the robot"),
        _paper("video", "video", "the same with natural video (give --clips; else generated)"),
        _paper("video-random", "video_random", "the same, a random clip for each episode"),
        Suite(
            "ablation-components",
            "SIBE without its bonus, and without compression",
            *("paper", _SPARSE_TASKS, ("clean", "noise", "video"), _COMPONENTS, _FIVE),
        ),
        Suite(
            "ablation-chunk",
            "SIBE with chunk length L from 1 to 4, and L = 1 with a doubled batch",
            *("paper", _SPARSE_TASKS, ("clean",), _CHUNKS, _FIVE),
        ),
        Suite(
            "cpu-demo",
            "SIBE against plain SAC, about an hour and a half on two cores",
            *("cpu", ("cartpole_swingup",), ("clean", "noise"), _plain("sibe", "none"), (1, 2, 3)),
            threads=1,
        ),
        *_STUDY,
        Suite(
            "smoke",
            "seconds per run: does everything work here?",
            *("debug", ("cartpole_swingup",), ("clean", "noise"), _plain("sibe", "none"), (1, 2)),
            threads=1,
            changes=_TINY,
        ),
    )
}


def find_suite(name: str) -> Suite:
    """Return the suite called ``name``, or say which names are near."""
    if name not in SUITES:
        raise UserError(
            f"unknown suite {name!r}{nearest(name, SUITES)} (there are {', '.join(SUITES)})"
        )
    return SUITES[name]
