"""Variants: which runs may be averaged, what they are called and how they are drawn.

Two runs belong to one variant if they share the method, the preset and every hyperparameter: that
is, everything but task, background, seed, machine, length, and how often it is evaluated and saved.
A variant is named by what it changes against its preset; the paper's ablations have the paper's
names. Colors are Okabe and Ito's (and Tol's beyond), fixed per method, so that a method looks the
same in every report; dashes and markers differ too, for those who see no colors.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any, Literal

from sibe.agents.entry import AgentEntry
from sibe.analysis.runs import Run
from sibe.catalogue.presets import PRESETS, preset_config
from sibe.catalogue.registry import find_agent, method_names
from sibe.catalogue.run_config import to_json
from sibe.config.schema import EncoderConfig, EnvConfig, SACConfig, ScheduleConfig
from sibe.errors import UserError

Kind = Literal["method", "component", "chunk", "other"]

_MORE_COLORS = ("#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#999933", "#AA4499")
DASHES = ("", "6 3", "2 2", "8 3 2 3", "4 2 1 2 1 2", "10 4", "1 3")
"""Dash patterns in line widths, as SVG writes them; "" is a solid line."""
_KINDS: tuple[Kind, ...] = ("method", "component", "chunk", "other")
_ALPHA, _LAMBDA = "method_config.alpha", "method_config.intrinsic"
_CHUNK, _METHOD_BATCH = "sac.chunk", "sac.method_batch"
# What tells runs of one variant apart, or has no part in the result.
_FREE = (
    *("seed", "threads", "device", "preset", "method", "env.task", "env.background"),
    *(f"schedule.{name}" for name in ("env_steps", "eval_every", "eval_episodes")),
    *("schedule.checkpoint_every", "schedule.eval_process", "schedule.video", "schedule.track"),
)
_CLIPS = "env.clips"


@dataclass(frozen=True)
class Variant:
    """A set of runs that differ in task, background and seed only."""

    key: str
    """method, preset and changes; equal for equal variants"""
    label: str
    """what people read"""
    kind: Kind
    method: str
    color: str = "#000000"
    dash: str = ""
    preset: str = ""


def assign_variants(runs: Sequence[Run]) -> tuple[list[Variant], dict[str, Variant]]:
    """Return the variants in the order they are shown, and each run's variant by its name."""
    changes = _all_changes(runs)
    several_presets = len({run.config["preset"] for run in runs}) > 1
    plain = {run.name: _variant(run, changes[run.name], several_presets) for run in runs}
    styled = {variant.key: variant for variant in _styled(sorted(set(plain.values()), key=_order))}
    return list(styled.values()), {name: styled[variant.key] for name, variant in plain.items()}


@functools.cache
def _entry(method: str) -> AgentEntry | None:
    """Return a method's entry; None if it is not installed, or a plug-in that does not load."""
    try:
        return find_agent(method)
    except UserError:
        return None


def _variant(run: Run, changes: dict[str, Any], several_presets: bool) -> Variant:
    method, preset = run.config["method"], run.config["preset"]
    entry = _entry(method)
    name = method if entry is None else entry.label
    label, kind = _describe(name, method, changes)
    if several_presets:
        label = f"{label} ({preset})"
    key = ", ".join([method, preset, *(f"{name}={value}" for name, value in changes.items())])
    return Variant(key, label, kind, method, preset=preset)


def _describe(name: str, method: str, changes: dict[str, Any]) -> tuple[str, Kind]:
    if not changes:
        return name, "method"
    zero = [part for part in (_ALPHA, _LAMBDA) if changes.get(part) == 0]
    if method == "sibe" and len(zero) == len(changes):
        words = {_ALPHA: "non-compression", _LAMBDA: "non-reward"}
        return f"{', '.join(words[part] for part in zero)} {name}", "component"
    if method == "sibe" and changes.keys() <= {_CHUNK, _METHOD_BATCH}:
        chunk, batch = changes.get(_CHUNK, 2), changes.get(_METHOD_BATCH, 1)
        more = "" if batch == 1 else ", doubled batch" if batch == 2 else f", batch ×{batch}"
        return f"{name}, L = {chunk}{more}", "chunk"
    parts = (f"{part.removeprefix('method_config.')} = {_word(v)}" for part, v in changes.items())
    return ", ".join([name, *parts]), "other"


def _word(value: Any) -> str:
    names = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return "+".join(value) if names else str(value)


def _all_changes(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Return each run's changes by its name.

    The clip bank, and a field that this version does not know, count where runs of one method and
    task disagree on it; the bank among those with one background, as others have none.
    """
    changes, unknown = {}, {}
    values: dict[tuple[str, ...], set[str]] = {}

    def group(run: Run, name: str) -> tuple[str, ...]:
        background = run.background if name == _CLIPS else ""
        return run.config["method"], run.task, background, name

    for run in runs:
        changes[run.name], unknown[run.name] = _changes(run.config)
        for name, value in unknown[run.name].items():
            values.setdefault(group(run, name), set()).add(repr(value))
    for run in runs:
        for name, value in unknown[run.name].items():
            if len(values[group(run, name)]) > 1:
                changes[run.name][name] = value
    return changes


def _changes(config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what differs from the preset, and what may only tell runs apart."""
    reference = dict(_leaves(_preset_json(config)))
    changed, unknown = {}, {}
    values = {**dict(_leaves(_defaults(config["method"]))), **dict(_leaves(config))}
    for name, value in values.items():
        if name in _FREE:
            continue
        if name == _CLIPS:  # the path of a bank is private
            unknown[name] = PurePath(value).name if isinstance(value, str) else value
        elif name not in reference:
            unknown[name] = value
        elif value != reference[name]:
            changed[name] = value
    return changed, unknown


def _defaults(method: str) -> dict[str, Any]:
    """Return the values of fields that the version which made a run may not have had yet.

    They are the dataclasses' own, under which a new field changes nothing; not the preset's.
    """
    parts: dict[str, Any] = {
        "env": EnvConfig(),
        "encoder": EncoderConfig(),
        "sac": SACConfig(),
        "schedule": ScheduleConfig(),
    }
    entry = _entry(method)
    if entry is not None:
        parts["method_config"] = entry.config()
    return {name: asdict(part) for name, part in parts.items()}


def _preset_json(config: dict[str, Any]) -> dict[str, Any]:
    preset, env, method = config["preset"], config["env"], config["method"]
    if preset not in PRESETS:
        return {}
    known = method if _entry(method) is not None else "sibe"
    reference = to_json(
        preset_config(preset, task=env["task"], method=known, background=env["background"])
    )
    if known == method:
        return reference
    # A method of another version: its own fields are unknown, those of SAC are not.
    return {name: value for name, value in reference.items() if name != "method_config"}


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, list(value) if isinstance(value, tuple) else value


def _order(variant: Variant) -> tuple[int, int, str]:
    methods = method_names()
    place = methods.index(variant.method) if variant.method in methods else len(methods)
    return _KINDS.index(variant.kind), place, variant.label


def _styled(variants: list[Variant]) -> Iterable[Variant]:
    """Give each variant its color and dashes: fixed for a method, free ones for its variants."""
    taken: list[tuple[str, str]] = []
    for variant in variants:
        color, dash = next(style for style in _styles(variant, taken) if style not in taken)
        taken.append((color, dash))
        yield replace(variant, color=color, dash=dash)


def _styles(variant: Variant, taken: list[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """Yield styles for a variant, the best first; the last ones are new for certain."""
    methods = method_names()
    entry = _entry(variant.method)
    color = None if entry is None else entry.color
    if variant.kind == "method" and color is not None:
        colors: Sequence[str] = (color,)
        first = methods.index(variant.method) % len(DASHES)
    else:
        used = {color for color, _ in taken}
        colors = sorted(_MORE_COLORS, key=lambda color: color in used)
        first = 1
    for dash in (*DASHES[first:], *DASHES[:first]):
        for color in colors:
            yield color, dash
    yield from ((colors[0], f"{n} 2") for n in range(11, 12 + len(taken)))
