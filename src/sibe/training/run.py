"""``train``: from a config to a finished run directory, and how a run is named."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sibe.catalogue.registry import plugin_origin
from sibe.catalogue.run_config import (
    check,
    comparable,
    read_run_config,
    refuse_fewer_env_steps,
    to_json,
    with_defaults,
)
from sibe.config.schema import RunConfig
from sibe.envs.tasks import check_clips, refuse_import
from sibe.errors import UserError
from sibe.logs.tracked_runs import Tracking, check_installed, make_trackers
from sibe.storage.run_directory import RunDirectory, has_begun, refuse_foreign
from sibe.storage.run_files import RunFiles
from sibe.training.allocation import keep_memory
from sibe.training.determinism import compute_with
from sibe.training.interrupts import interruptible
from sibe.training.messages import announce, compare_kernels, conclude, stopped
from sibe.training.meta import collect_meta
from sibe.training.portable import FLAG, PORTABLE, are_set, how_to_set
from sibe.training.resources import check_resources
from sibe.training.threads import threads_of

if TYPE_CHECKING:  # they import the simulator
    from sibe.training.build import Parts
    from sibe.training.callbacks import Callback
    from sibe.training.evaluators import Evaluator
    from sibe.training.own_envs import OwnEnvs
    from sibe.training.trainer import Trainer


def default_directory(config: RunConfig) -> Path:
    """Return runs/<task>-<background>/<method>/seed<k>; other sensors than pixels are named too."""
    place = f"{config.env.task.replace('/', '_').replace(':', '_')}-{config.env.background}"
    if not config.env.seen.bare:
        place += f"-{'+'.join(config.env.seen.names)}"
    return Path("runs") / place / config.method / f"seed{config.seed}"


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; "auto" is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"--device {name!r} is not a device: use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--device {name}: torch sees no GPU here: use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"--device {name}: this machine has {torch.cuda.device_count()} GPUs")
    if device.type not in ("cpu", "cuda"):
        raise UserError(f"--device {name}: use auto, cpu or cuda")
    return device


def resolve(config: RunConfig, path: Path | None = None) -> RunConfig:
    """Return the config with what the machine decides filled in, so that it can be repeated.

    A run that was begun elsewhere, or on other cores, keeps what was decided then.
    """
    before = _stored(path)
    device = before.get("device", "auto") if config.device == "auto" else config.device
    if config.deterministic == PORTABLE:
        device = "cpu" if device == "auto" else device
        if device != "cpu":
            raise UserError(f"{FLAG} {PORTABLE} is for the CPU: leave out --device {device}")
    threads = threads_of(config, before.get("threads", 0)).number
    return replace(config, threads=threads, device=str(choose_device(device)))


def _stored(path: Path | None) -> dict[str, Any]:
    """Return the config.json in ``path``, {} if there is none."""
    files = None if path is None else RunFiles(path)
    return files.read_config() if files is not None and files.config_json.exists() else {}


def train(
    config: RunConfig,
    out: Path | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    own: OwnEnvs | None = None,
) -> Path:
    """Run, or continue, the training that ``config`` describes; return its directory.

    A run that is there already, asked for more env steps than it was begun for, is extended.
    Nothing is written before environments and agent are built.

    Args:
        config: the run.
        out: its directory; None for ``default_directory``.
        callbacks: are told of what happens, and may stop the run.
        own: environments made in Python, in place of the config's task.

    Raises:
        Stopped: after Ctrl-C, with the env step from which the same call continues.
    """
    config = with_defaults(config)
    path = default_directory(config) if out is None else Path(out)
    trainer: Trainer | None = None

    def describe() -> str:
        return stopped(path, None if trainer is None else trainer.env_step)

    with interruptible(describe) as interrupts, contextlib.ExitStack() as stack:
        config = _checked(config, path)
        meta = _prepare(config)
        parts, evaluator = _build(config, own, stack)
        interrupts.check()  # before anything is written
        directory = stack.enter_context(
            RunDirectory.create_or_open(path, to_json(config), meta, comparable=comparable)
        )
        compare_kernels(config, directory, meta["kernels"])
        trainer = _make_trainer(config, parts, evaluator, directory, callbacks)
        try:
            trainer.run()
        finally:
            trainer.recorder.close()
            sys.stdout.flush()
        conclude(directory)
    return path


def _checked(config: RunConfig, path: Path) -> RunConfig:
    """Return the config as this machine would run it, or refuse it; announce it otherwise."""
    check(config)
    check_installed(config.schedule.track)
    refuse_foreign(path)
    before = _stored(path)
    if has_begun(RunFiles(path)):
        refuse_fewer_env_steps(path, before, config.schedule.env_steps)
    else:  # a run of an older version may have settings without effect
        check_clips(config.env.background, config.env.clips, config.env.loop_frames)
    threads = threads_of(config, before.get("threads", 0))
    config = resolve(config, path)
    if config.deterministic == PORTABLE:
        _refuse_other_arithmetic()
    RunDirectory.check(path, to_json(config), comparable=comparable)
    check_resources(config, path)
    announce(config, path, threads)
    return config


def _refuse_other_arithmetic() -> None:
    if not are_set():
        raise UserError(
            f"{FLAG} {PORTABLE} is decided before any library is loaded: put this before the "
            f"command: {how_to_set()}"
        )
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        raise UserError(f"{FLAG} {PORTABLE} needs an x86-64 processor with AVX2: leave it out")


def _prepare(config: RunConfig) -> dict[str, Any]:
    """Set this process up for learning; return the contents of meta.json."""
    keep_memory()
    compute_with(config.threads)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it CUDA's sums may differ
    plugin = plugin_origin(config.method)
    return collect_meta(autocast=config.encoder.autocast) | (
        {} if plugin is None else {"plugin": plugin}
    )


def _build(
    config: RunConfig, own: OwnEnvs | None, stack: contextlib.ExitStack
) -> tuple[Parts, Evaluator]:
    """Return what learns and what evaluates; ``stack`` closes their environments."""
    # Here, because they import the simulator, which a wrong flag should not have to wait for.
    from sibe.training.build import build_parts
    from sibe.training.evaluators import make_evaluator

    parts = build_parts(config, torch.device(config.device), own)
    stack.callback(parts.env.close)
    parts.env.reset(seed=0)  # draws a frame, which starts OpenGL; training resets it again
    evaluator = make_evaluator(config, parts.agent, own)
    stack.callback(evaluator.close)
    return parts, evaluator


def _make_trainer(
    config: RunConfig,
    parts: Parts,
    evaluator: Evaluator,
    directory: RunDirectory,
    callbacks: Sequence[Callback],
) -> Trainer:
    from sibe.training.recorder import Recorder
    from sibe.training.trainer import Trainer

    name = "-".join(default_directory(config).parts[1:])
    trackers = make_trackers(config.schedule.track, directory, name, to_json(config))
    recorder = Recorder(directory, config.schedule.env_steps, optional=trackers)
    return Trainer(config, *parts, recorder, evaluator, directory, callbacks)


def resume(
    path: Path,
    track: Tracking | None = None,
    env_steps: int | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    own: OwnEnvs | None = None,
    allow_import: bool = False,
) -> Path:
    """Continue the run in ``path`` with the config it was started with.

    ``track`` overrides the tracker it was started with. One that is not installed here is refused
    if it is asked for; if it is only what the run was started with, the run goes on without.
    ``env_steps`` extends the run, which then ends as one that was asked for as many at first.
    ``allow_import`` is as for ``load_policy``.
    """
    config = read_run_config(path)
    refuse_import(config.env.task, allowed=allow_import)
    if track is None:
        track = config.schedule.track
        try:
            check_installed(track)
        except UserError as error:
            print(f"note: this run goes on untracked: {error}", flush=True)
            track = "none"
    steps = config.schedule.env_steps if env_steps is None else env_steps
    schedule = replace(config.schedule, track=track, env_steps=steps)
    return train(replace(config, schedule=schedule), path, callbacks=callbacks, own=own)
