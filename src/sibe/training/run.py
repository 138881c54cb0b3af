"""``train``: from a config to a finished run directory, and how a run is named."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from sibe.catalogue.run_config import (
    check,
    comparable,
    from_json,
    to_json,
    updates_per_run,
    with_defaults,
)
from sibe.config.schema import RunConfig
from sibe.envs.own_env import is_own_name
from sibe.envs.tasks import refuse_import
from sibe.errors import UserError
from sibe.logs.tracked_runs import Tracking, check_installed, make_trackers
from sibe.storage.run_directory import RunDirectory
from sibe.storage.run_files import RunFiles
from sibe.training.allocation import keep_memory
from sibe.training.meta import collect_meta
from sibe.training.resources import check_resources, replay_ram_bytes

if TYPE_CHECKING:  # they import the simulator
    from sibe.training.callbacks import Callback
    from sibe.training.own_envs import OwnEnvs


def default_directory(config: RunConfig) -> Path:
    """Return runs/<task>-<background>/<method>/seed<k>."""
    place = f"{config.env.task.replace('/', '_').replace(':', '_')}-{config.env.background}"
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
    # One result for one config: the number of threads changes the order of summation.
    files = None if path is None else RunFiles(path)
    before = files.read_config() if files is not None and files.config_json.exists() else {}
    threads = config.threads or before.get("threads") or len(os.sched_getaffinity(0))
    device = before.get("device", "auto") if config.device == "auto" else config.device
    return replace(config, threads=threads, device=str(choose_device(device)))


def train(
    config: RunConfig,
    out: Path | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    own: OwnEnvs | None = None,
) -> Path:
    """Run, or continue, the training that ``config`` describes; return its directory.

    Args:
        config: the run.
        out: its directory; None for ``default_directory``.
        callbacks: are told of what happens, and may stop the run.
        own: environments made in Python, in place of the config's task.
    """
    config = with_defaults(config)
    check(config)
    check_installed(config.schedule.track)
    path = default_directory(config) if out is None else Path(out)
    config = resolve(config, path)
    keep_memory()
    torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it CUDA's sums may differ
    meta = collect_meta()
    with RunDirectory.create_or_open(
        path, to_json(config), meta, comparable=comparable
    ) as directory:
        check_resources(config, path)
        _announce(config, path)
        _compare_kernels(config, directory, meta["kernels"])
        _run(config, directory, callbacks, own)
        _conclude(directory)
    return path


def resume(
    path: Path,
    track: Tracking | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    own: OwnEnvs | None = None,
    allow_import: bool = False,
) -> Path:
    """Continue the run in ``path`` with the config it was started with.

    ``track`` overrides the tracker it was started with. One that is not installed here is refused
    if it is asked for; if it is only what the run was started with, the run goes on without.
    ``allow_import`` is as for ``load_policy``.
    """
    config = from_json(RunFiles(path).read_config())
    refuse_import(config.env.task, allowed=allow_import)
    if track is None:
        track = config.schedule.track
        try:
            check_installed(track)
        except UserError as error:
            print(f"note: this run goes on untracked: {error}", flush=True)
            track = "none"
    schedule = replace(config.schedule, track=track)
    return train(replace(config, schedule=schedule), path, callbacks=callbacks, own=own)


def _announce(config: RunConfig, path: Path) -> None:
    place = f"{config.env.task} ({config.env.background})"
    print(f"{config.method} on {place}, seed {config.seed}, preset {config.preset} -> {path}")
    print(
        f"{config.schedule.env_steps} env steps, {updates_per_run(config)} updates on "
        f"{config.device} with {config.threads} threads; "
        f"replay up to {replay_ram_bytes(config) / 1e9:.2f} GB",
        flush=True,
    )


def _compare_kernels(config: RunConfig, directory: RunDirectory, now: bool) -> None:
    """Say so if a run goes on with sums in another order than it was begun with."""
    if config.device == "cpu" and directory.read_meta().get("kernels", False) != now:
        print(
            f"note: this run was begun {'without' if now else 'with'} the compiled kernels "
            f"(sibe doctor) and goes on {'with' if now else 'without'} them: it will not end with "
            "the same numbers bit for bit",
            flush=True,
        )


def _conclude(run: RunDirectory) -> None:
    """Draw the learning curve, and say what can be done with the run.

    A run in an environment made in Python cannot be evaluated from the command line.
    """
    from sibe.logs.learning_curve import write_learning_curve

    curve = write_learning_curve(run.path, run.curve_png)
    print(f"learning curve: {curve}")
    for video in run.list_videos():
        print(f"video of the last evaluation: {video}")
    commands = [f"tensorboard --logdir {run.path}"]
    if not is_own_name(run.config["env"]["task"]):
        evaluate = f"sibe eval {run.path}"
        commands = [f"{evaluate} --video out.mp4", f"{evaluate} --background video", *commands]
    print("next: " + "\n      ".join(commands), flush=True)


def _run(
    config: RunConfig, directory: RunDirectory, callbacks: Sequence[Callback], own: OwnEnvs | None
) -> None:
    # Here, because they import the simulator, which a wrong flag should not have to wait for.
    from sibe.training.build import build_trainer
    from sibe.training.recorder import Recorder

    name = "-".join(default_directory(config).parts[1:])
    trackers = make_trackers(config.schedule.track, directory, name, to_json(config))
    recorder = Recorder(directory, config.schedule.env_steps, optional=trackers)
    trainer = None
    try:
        device = torch.device(config.device)
        trainer = build_trainer(config, directory, recorder, device, callbacks=callbacks, own=own)
        trainer.run()
    finally:
        recorder.close()
        if trainer is not None:
            trainer.close()
        sys.stdout.flush()
