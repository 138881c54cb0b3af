"""All methods and agents by name: the one entry that adds one to the command line and the tests.

A method is plugged into SAC, a standalone agent is built as it is; ``find_agent`` returns both as
entries of one kind. Packages of others add methods by an entry point of the group
``sibe.methods`` (see docs/howto/add_method.md). A plug-in is imported only when its name is asked
for, so a broken one does not affect others, and it cannot take the name of a built-in one.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
from importlib.metadata import EntryPoint, entry_points

from sibe.agents.entry import AgentEntry
from sibe.agents.plan2explore.entry import PLAN2EXPLORE
from sibe.agents.sac.entry import sac_entry
from sibe.config.schema import RunConfig
from sibe.errors import UserError, nearest
from sibe.methods.db import DB, DBConfig
from sibe.methods.disagreement import Disagreement, DisagreementConfig
from sibe.methods.entry import Entry
from sibe.methods.icm import ICM, ICMConfig
from sibe.methods.none import NoMethod, NoneConfig
from sibe.methods.proto import Proto, ProtoConfig
from sibe.methods.rnd import RND, RNDConfig
from sibe.methods.rpc import RPC, RPCConfig
from sibe.methods.sibe import SIBE, SIBEConfig

ENTRY_POINT_GROUP = "sibe.methods"

# In the order in which tables and figures show them. Colors are Okabe and Ito's, then Tol's.
ENTRIES: dict[str, Entry | AgentEntry] = {
    "sibe": Entry(SIBEConfig, SIBE, label="SIBE", color="#0072B2", cpu={"alpha": 0.001}),
    "db": Entry(
        DBConfig,
        DB,
        label="DB",
        color="#E69F00",
        cpu={"prediction_weight": 1.0, "contrastive_weight": 1.0, "first_std": 0.5},
    ),
    "proto": Entry(ProtoConfig, Proto, label="Proto-RL", color="#009E73"),
    "plan2explore": PLAN2EXPLORE,
    "rpc": Entry(RPCConfig, RPC, bonus_field="reward_cost", label="RPC", color="#CC79A7"),
    "none": Entry(NoneConfig, NoMethod, bonus_field=None, label="SAC", color="#7A7A7A"),
    "disagreement": Entry(DisagreementConfig, Disagreement, label="Disagreement", color="#56B4E9"),
    "icm": Entry(ICMConfig, ICM, label="ICM", color="#999933"),
    "rnd": Entry(RNDConfig, RND, label="RND", color="#AA4499"),
}
METHODS = {name: entry for name, entry in ENTRIES.items() if isinstance(entry, Entry)}
"""The built-in methods that are plugged into SAC."""


def method_names() -> list[str]:
    """Return the names of all methods, built in or installed, without importing a plug-in."""
    return [*ENTRIES, *(name for name in _plugins() if name not in ENTRIES)]


def plugin_origin(name: str) -> dict[str, str] | None:
    """Return package and entry point of the plug-in that offers a method; None if built in."""
    points = [] if name in ENTRIES else _plugins().get(name, [])
    return {"package": _origins(points), "entry_point": points[0].value} if points else None


def find_agent(name: str) -> AgentEntry:
    """Return the agent called ``name``: SAC with that method, or a standalone agent."""
    entry = _find(name)
    return sac_entry(name, entry) if isinstance(entry, Entry) else entry


def find_method(name: str) -> Entry:
    """Return the method called ``name``, which can be plugged into SAC."""
    entry = _find(name)
    if not isinstance(entry, Entry):
        raise UserError(f"{name} is a standalone agent and cannot be plugged into SAC")
    return entry


def _find(name: str) -> Entry | AgentEntry:
    points = _plugins().get(name, [])
    if name in ENTRIES:
        if points:
            _warn_once(
                f"{_origins(points)} also offers a method {name!r}: the built-in one is used; "
                "rename or uninstall the other"
            )
        return ENTRIES[name]
    if not points:
        known = method_names()
        raise UserError(
            f"unknown method {name!r}{nearest(name, known)} (known: {', '.join(known)})"
        )
    if len(points) > 1:
        raise UserError(f"method {name!r} is offered by {_origins(points)}: uninstall all but one")
    return _load(points[0])


@functools.cache
def _warn_once(line: str) -> None:
    logging.getLogger("sibe").warning("sibe: %s", line)


def _plugins() -> dict[str, list[EntryPoint]]:
    """Return the entry points of others by name; one name may be claimed more than once."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def _origins(points: list[EntryPoint]) -> str:
    return " and ".join(sorted(point.dist.name if point.dist else point.value for point in points))


def _load(point: EntryPoint) -> Entry:
    """Import a plug-in and check that it is an ``Entry``, or a function that returns one."""
    where = f"method {point.name!r} of {_origins([point])} ({point.value})"
    try:
        loaded = point.load()
        if not isinstance(loaded, Entry) and callable(loaded):
            loaded = loaded()
    except Exception as error:  # third-party code may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where} does not load ({why}): fix or uninstall it") from error
    fault = _fault(point.name, loaded)
    if fault:
        raise UserError(f"{where} {fault}: see docs/howto/add_method.md")
    entry: Entry = loaded
    return entry


def _fault(name: str, loaded: object) -> str | None:
    """Return what is wrong with a plug-in, if anything."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):  # it becomes a flag and a folder
        return "has a name with other characters than letters, digits, - and _"
    if name in {field.name for field in dataclasses.fields(RunConfig)}:
        return "has the name of a part of the configuration: give it another"
    if not isinstance(loaded, Entry):
        return f"is a {type(loaded).__name__}, not a sibe.methods.entry.Entry"
    if not (isinstance(loaded.config, type) and dataclasses.is_dataclass(loaded.config)):
        return "has a config that is not a dataclass"
    if not loaded.config.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return "has a config that is not frozen (@dataclass(frozen=True))"
    try:
        loaded.config()
    except Exception as error:
        return f"has a config without valid defaults ({' '.join(str(error).split())})"
    if loaded.color is not None and not re.fullmatch(r"#[0-9A-Fa-f]{6}", str(loaded.color)):
        return f"has the color {loaded.color!r}: give #RRGGBB, or None"
    fields = [field.name for field in dataclasses.fields(loaded.config)]
    if missing := sorted(set(loaded.cpu) - set(fields)):
        return f"has no field {missing[0]!r} in its config, which its cpu preset sets"
    if loaded.bonus_field is not None and loaded.bonus_field not in fields:
        return f"has no field {loaded.bonus_field!r} in its config, which should scale its bonus"
    return None
