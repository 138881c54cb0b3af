"""Reading runs: every run directory below some folders, whole or in part, and what is wrong.

A run is a folder with a config.json; of its logs only eval.csv must be there, so a folder of
published results (config and csv, no checkpoints) is a run too. Reading takes no lock and writes
nothing: a run may be training meanwhile, and a row it has half written is left out. What cannot
be read is named with the reason, and the others are returned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sibe.catalogue.run_config import kept_hash, upgraded
from sibe.envs.tasks import BACKGROUNDS
from sibe.errors import UserError, printable
from sibe.logs.csv_log import LogCopy, difference, read_results
from sibe.logs.csv_sink import known_logs
from sibe.storage import checkpoint
from sibe.storage.run_files import CONFIG_JSON, EVAL_CSV, TRAIN_CSV, RunFiles

Table = dict[str, NDArray[np.float64]]
_SIGNS = {CONFIG_JSON, EVAL_CSV, TRAIN_CSV}  # one of them makes a folder a candidate


@dataclass(frozen=True)
class Run:
    """One run: what was asked for and what has been logged so far."""

    name: str
    """where it was found, from the given folder on; unique among the runs read"""
    path: Path
    config: dict[str, Any]
    meta: dict[str, Any]
    """{} where there is no meta.json"""
    evals: Table
    """eval.csv, ``frame`` ascending, ``episode_reward`` finite; {} before the first evaluation"""
    episodes: Table
    """eval_episodes.csv, {} if there is none"""
    training: Table
    """train.csv, {} if there is none"""

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.config["env"]["task"])

    @property
    def background(self) -> str:
        """clean, noise or video."""
        return str(self.config["env"]["background"])

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.config["seed"])

    @property
    def planned(self) -> int:
        """Env steps that the whole run is to take."""
        return int(self.config["schedule"]["env_steps"])

    @property
    def reached(self) -> int:
        """Env steps at the last evaluation."""
        return int(self.evals["frame"][-1])

    @property
    def videos(self) -> list[Path]:
        """The evaluation's videos, oldest first."""
        return RunFiles(self.path).list_videos()


class LeftOut(NamedTuple):
    """A folder that looks like a run and could not be used."""

    name: str
    reason: str


def read_runs(roots: Sequence[Path]) -> tuple[list[Run], list[LeftOut]]:
    """Return the evaluated runs below ``roots``, sorted by name, and what was left out.

    Raises:
        UserError: if a root is missing, or no run is left.
    """
    runs: list[Run] = []
    out: list[LeftOut] = []
    for folder, name in _find(roots):
        try:
            run = read_run(folder, name)
            if not run.evals:
                raise UserError("it has no evaluation yet")
            runs.append(run)
        except UserError as error:
            out.append(LeftOut(name, str(error).replace(str(folder), name)))
        except OSError as error:  # a link that leads to itself, no permission
            out.append(LeftOut(name, f"cannot read a file of it ({error.strerror or error})"))
    if not runs:
        where = ", ".join(map(str, roots))
        why = f" ({len(out)} left out; {out[0].name}: {out[0].reason})" if out else ""
        raise UserError(
            f"no run with an evaluation under {where}{why}: "
            "give run directories, or folders of them"
        )
    return runs, out


def _find(roots: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each folder that is, or should be, a run, once, and its name."""
    been: set[str] = set()
    names: set[str] = set()
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root} is not a folder: give run directories, or folders of them")
        for folder in _candidates(root, been):
            name = _name(root, folder)
            while name in names:  # two roots of one name
                name += "′"
            names.add(name)
            yield folder, name


def _candidates(root: Path, been: set[str]) -> Iterator[Path]:
    for place, folders, files in os.walk(root, followlinks=True):
        if (real := os.path.realpath(place)) in been:  # of another root, or a link that leads back
            folders.clear()
            continue
        been.add(real)
        folders.sort()
        if not _SIGNS.isdisjoint(files):
            folders.clear()  # what is below belongs to this run
            yield Path(place)


def _name(root: Path, folder: Path) -> str:
    relative = folder.relative_to(root)
    # The folder's own name even for ".": what the user typed may say nothing.
    return str(Path(root.resolve().name) / relative)


def read_run(folder: Path, name: str) -> Run:
    """Return the run in ``folder``, evaluated or not.

    Raises:
        UserError: if it is none, or one of its files cannot be read.
    """
    files = RunFiles(folder)
    config = files.read_config()
    _check_config(config)
    logs, config_hash = checkpoint.recorded(files.checkpoints)
    if config_hash and config_hash != kept_hash(config):
        raise UserError(
            "its config.json was changed after its last checkpoint: sibe train --resume says where"
        )
    config = upgraded(config)
    _check_logs(files, logs)
    return Run(
        name=name,
        path=folder,
        config=config,
        meta=files.read_meta(),
        evals=_read_log(files.eval_csv),
        episodes=_read_log(files.eval_episodes_csv),
        training=_read_log(files.train_csv),
    )


def _check_config(config: dict[str, Any]) -> None:
    try:
        env, schedule = config["env"], config["schedule"]
        texts = (config["method"], config["preset"], env["task"], env["background"])
        whole = (config["seed"], env["action_repeat"], schedule["env_steps"])
    except (KeyError, TypeError, IndexError) as error:
        raise UserError(f"its config.json is not that of a run: {error} is missing") from None
    if not all(isinstance(value, str) for value in texts) or not all(
        isinstance(value, int) for value in whole
    ):
        raise UserError("its config.json is not that of a run: a value has the wrong type")
    if any(printable(text) != text for text in texts):
        raise UserError("its config.json is not that of a run: a name has control characters")
    if env["background"] not in BACKGROUNDS:  # it becomes part of file names
        raise UserError(f"its config.json has an unknown background: {env['background']!r}")


def _check_logs(run: RunFiles, recorded: dict[str, checkpoint.Recorded]) -> None:
    """Refuse logs that are not what the newest checkpoint recorded, later rows aside."""
    for path in (run.train_csv, run.eval_csv, run.eval_episodes_csv):
        if path.name not in recorded:
            continue
        damage = difference(path, *recorded[path.name], partial(_stored, run, path.name))
        if damage:
            raise UserError(f"{damage}: sibe train --resume puts it back from the checkpoint")


def _stored(run: RunFiles, name: str) -> bytes:
    """Return what the newest checkpoint holds of a log; any damage to that is a ValueError."""
    try:
        found = checkpoint.load_newest(run.checkpoints, map_location="cpu", report=_ignore)
        copy = known_logs(found[1]["logs"])[name] if found else 0
    except (UserError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
    return copy.content() if isinstance(copy, LogCopy) else b""


def _ignore(line: str) -> None:
    pass


def _read_log(path: Path) -> Table:
    """Return the rows that have a step and a return, in order; {} if there are none yet."""
    table = read_results(path)
    order = np.argsort(table["frame"], kind="stable") if table else None
    return {name: column[order] for name, column in table.items()}
