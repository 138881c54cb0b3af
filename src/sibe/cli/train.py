"""`sibe train`: flags from the config, defaults from the preset.

Preset, task, method and background decide the defaults of all other flags, so they are looked for
first; then the whole line is parsed against the config they give.
"""

from __future__ import annotations

import dataclasses
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from tyro.conf import arg

from sibe.catalogue.presets import PRESETS, default_preset, preset_config
from sibe.catalogue.registry import find_agent, method_names
from sibe.cli.parsing import parse
from sibe.config.schema import RunConfig
from sibe.envs.tasks import check_names
from sibe.errors import UserError
from sibe.storage.run_directory import has_begun
from sibe.storage.run_files import RunFiles

_AGENT_PARTS = ("sac", "encoder")
"""Parts of the config that not every agent uses; those it does not use have no flags."""
_ALLOW_IMPORT = "With --resume: let the run's task import the module it names (module:Name-v0)."
_WITH_RESUME = ("--resume", "--track", "--env-steps", "--allow-import")


def first_value(args: list[str], *flags: str) -> str | None:
    """Return what follows the last of ``flags`` in ``args``, also as ``--flag=value``."""
    found = None
    for here, after in zip_longest(args, args[1:], fillvalue=""):
        name, _, value = here.partition("=")
        if name.replace("_", "-") in flags:
            found = value or after
    return found


def all_values(args: list[str], flag: str) -> list[str]:
    """Return the words that follow the last ``flag`` in ``args``, up to the next flag."""
    found: list[str] = []
    for here, word in enumerate(args):
        if word.replace("_", "-") == flag:
            found = list(takewhile(lambda after: not after.startswith("--"), args[here + 1 :]))
    return found


def train_type(default: RunConfig) -> type[Any]:
    """Return the dataclass of the command line: the config, and where the run goes.

    The method's own flags carry its name: ``--sibe.alpha``.
    """
    fields: list[Any] = [
        ("out", Annotated[Path | None, arg(help="Directory of the run (default: runs/…).")], None),
        ("resume", Annotated[Path | None, arg(help="Continue the run in this directory.")], None),
        ("allow_import", Annotated[bool, arg(help=_ALLOW_IMPORT)], False),
    ]
    unused = set(_AGENT_PARTS) - set(find_agent(default.method).parts)
    hints = get_type_hints(RunConfig)
    for field in dataclasses.fields(RunConfig):
        if field.name in unused:
            continue
        value = getattr(default, field.name)
        kind: Any
        if field.name == "method_config":
            kind = Annotated[type(value), arg(name=default.method)]
        elif field.name in ("env", "schedule"):
            kind = Annotated[type(value), arg(name="")]
        elif dataclasses.is_dataclass(value):
            kind = type(value)
        else:
            kind = Annotated[hints[field.name], arg(help=_help(field.name))]
        fields.append((field.name, kind, dataclasses.field(default=value)))
    made = dataclasses.make_dataclass("Train", fields, frozen=True)
    made.__doc__ = "Train an agent. The same command again continues a run that was interrupted."
    return made


def _help(name: str) -> str:
    texts = {
        "seed": "One seed gives one result.",
        "method": f"What is added to SAC, or a standalone agent: {', '.join(method_names())}.",
        "preset": f"Where the defaults come from: {', '.join(PRESETS)}.",
        "device": "auto, cpu, cuda, cuda:1, …",
        "deterministic": "machine: one kind of machine repeats its numbers; portable: any x86-64 "
        "with AVX2 does, with one thread and more slowly (`sibe verify`).",
        "threads": "CPU threads for learning; 0 for OMP_NUM_THREADS, or all cores if it is unset.",
    }
    return texts[name]


def _refuse_unused_flags(method: str, args: list[str]) -> None:
    unused = set(_AGENT_PARTS) - set(find_agent(method).parts)
    for word in args:
        if word.startswith(tuple(f"--{part}." for part in unused)):
            raise UserError(
                f"{word.partition('=')[0]} does not apply to {method}, a standalone agent; "
                f"see --{method}.* in sibe train --method {method} --help"
            )


def run_train(args: list[str]) -> int:
    """Parse the line and train."""
    preset, method = first_value(args, "--preset"), first_value(args, "--method") or "sibe"
    task = first_value(args, "--task") or "cartpole_swingup"
    find_agent(method)
    background = first_value(args, "--background") or "clean"
    chosen, why = (preset, "") if preset else _choose_preset(args, task, method, background)
    default = preset_config(chosen, task=task, method=method, background=background)
    _refuse_unused_flags(method, args)
    command = parse(train_type(default), args, prog="sibe train")
    if command.resume is not None:
        return _resume(command, args)
    asked = {field.name for field in dataclasses.fields(RunConfig)} & set(vars(command))
    config = dataclasses.replace(default, **{name: getattr(command, name) for name in asked})
    check_names(config.env.task, config.env.background)
    if why:
        print(f"preset {chosen} ({why})")
    from sibe.training.run import train

    train(config, command.out)
    return 0


def _resume(command: Any, args: list[str]) -> int:
    from sibe.training.run import resume

    words = [word.partition("=")[0].replace("_", "-") for word in args if word.startswith("--")]
    extra = [word for word in words if word not in _WITH_RESUME]
    if extra:
        raise UserError(f"--resume takes the run's own config; leave out {' '.join(extra)}")
    track = command.schedule.track if "--track" in words else None
    env_steps = command.schedule.env_steps if "--env-steps" in words else None
    resume(command.resume, track, env_steps, allow_import=command.allow_import)
    return 0


def _choose_preset(args: list[str], task: str, method: str, background: str) -> tuple[str, str]:
    """Return the preset of the run that is there already, else what suits the machine; and why."""
    from sibe.training.run import default_directory

    seed = first_value(args, "--seed") or "1"
    config = preset_config("debug", task=task, method=method, background=background)
    if seed.isascii() and seed.isdigit():
        config = dataclasses.replace(config, seed=int(seed))
    sensors, cameras = (tuple(all_values(args, flag)) for flag in ("--sensors", "--cameras"))
    env = config.env
    if sensors:
        env = dataclasses.replace(env, sensors=sensors)  # type: ignore[arg-type]  # checked there
    if all(camera.removeprefix("-").isdecimal() for camera in cameras):
        env = dataclasses.replace(env, cameras=tuple(map(int, cameras)))
    config = dataclasses.replace(config, env=env)
    out = first_value(args, "--out")
    path = default_directory(config) if out is None else Path(out)
    if RunFiles(path).config_json.exists() and has_begun(RunFiles(path)):
        there = RunFiles(path).read_config().get("preset")
        if there in PRESETS:
            return there, f"that of the run in {path}"
    chosen = default_preset()
    return chosen, f"{'a GPU' if chosen == 'paper' else 'no GPU'} was found"
