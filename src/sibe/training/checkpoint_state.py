"""What the state of a checkpoint must look like, whatever its checksums say."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from sibe.catalogue.run_config import comparable, to_json
from sibe.config.schema import RunConfig
from sibe.errors import UserError
from sibe.storage.run_directory import first_difference

_KINDS: dict[str, tuple[type, ...]] = {
    "counters": (dict,),
    "agent": (dict,),
    "replay": (dict,),
    "logs": (dict,),
    "elapsed": (float,),
    "sample_rng": (str,),
    "random_rng": (str,),
    "act_generator": (Tensor,),
}
_LATER: dict[str, tuple[type, ...]] = {"evaluating": (dict, type(None)), "config": (str,)}
"""Parts that checkpoints of older versions lack."""


class OtherConfigError(UserError):
    """The run's config is not the one that the checkpoint was written with."""


def check_state(
    state: dict[str, Any], env_step: int, counters: Iterable[str], agent: dict[str, Any]
) -> None:
    """Refuse a state that no trainer has written.

    Args:
        state: what was loaded.
        env_step: what the checkpoint's header says.
        counters: the names of all counters.
        agent: the state of an agent of this run, for its keys and types.

    Raises:
        ValueError: saying what is wrong.
    """
    _same_keys("it", state.keys() | _LATER.keys(), _KINDS.keys() | _LATER.keys())
    for name, kinds in {**_KINDS, **_LATER}.items():
        if name in state and not isinstance(state[name], kinds):
            raise ValueError(f"its {name} is a {type(state[name]).__name__}")
    _same_keys("counters", state["counters"].keys(), set(counters))
    if not all(type(value) is int and value >= 0 for value in state["counters"].values()):
        raise ValueError("a counter is not a whole number")
    if state["counters"]["env_step"] != env_step:
        raise ValueError(f"its counters are those of env step {state['counters']['env_step']}")
    if not 0 <= state["elapsed"] < math.inf:
        raise ValueError(f"it took {state['elapsed']} seconds")
    _check_evaluating(state.get("evaluating"))
    _same_keys("agent", state["agent"].keys(), agent.keys())
    for name, value in agent.items():
        kind = dict if isinstance(value, dict) else type(value)
        if not isinstance(state["agent"][name], kind):
            raise ValueError(f"{name} of its agent is a {type(state['agent'][name]).__name__}")


def refuse_other_config(stored: str, config: RunConfig, config_json: Path) -> None:
    """Refuse a config.json that was edited: it would not describe what has been trained.

    Args:
        stored: the config that the checkpoint was written with, as JSON.
        config: the run's, as it is now.
        config_json: where it comes from.

    Raises:
        OtherConfigError: naming the field and both its values.
    """
    if change := changed_field(stored, config):
        name, old, new = change
        raise OtherConfigError(
            f"{config_json} was changed: {name} is {new} and was {old} when the checkpoint was "
            f"written; set it to {old} again, or start another run with --out"
        )


def changed_field(stored: str, config: RunConfig) -> tuple[str, str, str] | None:
    """Return the first field in which a config differs from the stored one, with both values."""
    return first_difference(_binding(json.loads(stored)), _binding(to_json(config)))


def _binding(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a config that a run keeps; it may be made longer."""
    kept = comparable(json.loads(json.dumps(values)))
    schedule = {name: value for name, value in kept["schedule"].items() if name != "env_steps"}
    return {**kept, "schedule": schedule}


def _check_evaluating(counts: dict[str, Any] | None) -> None:
    if counts is not None:
        _same_keys("evaluating", counts.keys(), {"frame", "step", "episode", "total_time"})
        if not all(type(value) in (int, float) and value >= 0 for value in counts.values()):
            raise ValueError("a counter of its evaluation is not a number")


def _same_keys(where: str, found: Iterable[Any], wanted: Iterable[str]) -> None:
    odd = set(found) ^ set(wanted)
    if odd:
        name = min(odd, key=str)
        verb = "lacks" if name in set(wanted) else "has an unknown"
        raise ValueError(f"{where} {verb} {name!r}")
