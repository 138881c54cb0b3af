"""What a run says at its start, when it is stopped, and at its end."""

from __future__ import annotations

from pathlib import Path

from sibe.catalogue.run_config import updates_per_run
from sibe.config.schema import RunConfig
from sibe.envs.own_env import is_own_name
from sibe.envs.tasks import VIDEOS, is_gym_id
from sibe.kernels import half_convolutions
from sibe.logs.amounts import count, size
from sibe.storage.checkpoint import list_steps
from sibe.storage.run_directory import RunDirectory
from sibe.storage.run_files import RunFiles
from sibe.training.resources import replay_ram_bytes
from sibe.training.threads import Threads, busy_note


def announce(config: RunConfig, path: Path, threads: Threads) -> None:
    """Say what is trained, where, and with what; warn if the machine is busy."""
    place = f"{config.env.task} ({config.env.background})"
    print(f"{config.method} on {place}, seed {config.seed}, preset {config.preset} -> {path}")
    print(
        f"{config.schedule.env_steps} env steps, {count(updates_per_run(config), 'update')} on "
        f"{config.device} with {threads}; replay up to {size(replay_ram_bytes(config))}",
        flush=True,
    )
    late = config.device == "cpu" and config.encoder.fusion == "late"
    if config.encoder.autocast and late and not half_convolutions.available():
        needs = "a processor with AVX512_BF16 and the compiled kernels (sibe doctor)"
        print(f"note: --encoder.autocast has no effect here, it needs {needs}", flush=True)
    if note := busy_note():
        print(note, flush=True)


def compare_kernels(config: RunConfig, directory: RunDirectory, now: list[str]) -> None:
    """Say so if a run goes on with sums in another order than it was begun with."""
    begun = directory.read_meta().get("kernels", [])
    if isinstance(begun, bool):  # written when there was one of them
        begun = ["convolution"] * begun
    if config.device == "cpu" and begun != now:
        print(
            f"note: this run was begun with {_kernels(begun)} (sibe doctor) and goes on with "
            f"{_kernels(now)}: it will not end with the same numbers bit for bit",
            flush=True,
        )


def _kernels(names: list[str]) -> str:
    return f"the compiled kernels {', '.join(names)}" if names else "no compiled kernels"


def stopped(path: Path, env_step: int | None) -> str:
    """Return where a run was stopped (None: before it had a trainer) and where it will continue."""
    saved = max(list_steps(RunFiles(path).checkpoints), default=0)
    starting = env_step is None or env_step < saved  # the checkpoint was not loaded yet
    where = "while starting" if starting else f"at env step {env_step}"
    then = f"the same command continues from env step {saved}" if saved else "nothing was saved yet"
    return f"stopped {where}; {then}"


def conclude(run: RunDirectory) -> None:
    """Draw the learning curve, and say what can be done with the run.

    A run in an environment made in Python cannot be evaluated from the command line.
    """
    from sibe.logs.learning_curve import write_learning_curve

    curve = write_learning_curve(run.path, run.curve_png)
    print(f"learning curve: {curve}")
    for video in run.list_videos()[-1:]:  # others were due while it was played out
        print(f"video of the last evaluation: {video}")
    commands = [f"tensorboard --logdir {run.path}"]
    task, background = run.config["env"]["task"], run.config["env"]["background"]
    if not is_own_name(task):
        evaluate, other = f"sibe eval {run.path}", "noise" if background in VIDEOS else "video"
        if background != "clean" or not is_gym_id(task):  # else there may be no geometry to cut out
            commands.insert(0, f"{evaluate} --background {other}")
        commands.insert(0, f"{evaluate} --video out.mp4")
    print("next: " + "\n      ".join(commands), flush=True)
