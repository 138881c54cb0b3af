"""What a run is: frozen dataclasses, to and from JSON.

Each field's docstring is the help text of its command-line flag. ``env_step`` counts simulator
steps including the action repeat, ``agent_step`` counts decisions; every name says which it means.
"""

from __future__ import annotations

import contextlib
import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from tyro.conf import arg

from sibe.catalogue.registry import AGENTS, find_method
from sibe.envs.tasks import LOOP_FRAMES
from sibe.errors import UserError
from sibe.logs.tracked_runs import Tracking
from sibe.methods.sibe import SIBEConfig
from sibe.replay.sampling import Sampling


@dataclass(frozen=True)
class EnvConfig:
    """The world: task, what is seen of it, and how often it is acted in."""

    task: str = "cartpole_swingup"
    """DeepMind Control task (see `sibe tasks`) or Gymnasium id."""
    background: str = "clean"
    """What is painted behind the robot: clean, noise, video or video_random."""
    size: int = 84
    """Height and width of a frame, in pixels."""
    supersample: int = 1
    """Draw a MuJoCo scene and its background this many times as large, then average the blocks."""
    stack: int = 3
    """Frames that make a state."""
    action_repeat: int = 4
    """Simulator steps per agent step (default: the task's usual number)."""
    camera: int | None = None
    """Index of the camera (default: the task's usual one)."""
    clips: str | None = None
    """Clip bank for the video background, made by `sibe videos prepare` (default: generated)."""
    loop_frames: int = LOOP_FRAMES
    """Length of the loop that the video background plays endlessly."""
    keep_floor: bool = False
    """With a background, leave the floor as it is."""
    noise_wrap: bool = False
    """Noise that wraps around the byte range, as in an older code family."""


@dataclass(frozen=True)
class EncoderConfig:
    """The convolutional encoder φ (Appendix A)."""

    features: int = 50
    """Size of the state representation c."""
    filters: int = 32
    """Channels of each convolution."""
    fusion: Literal["early", "late"] = "early"
    """Where the frames of a state meet: in the first convolution, or after the last."""
    strides: tuple[int, ...] = (2, 1, 1, 1)
    """Stride of each convolution; the paper's text says 1, the code it builds on 2,1,1,1."""
    tanh: bool = False
    """Squash c after its LayerNorm."""
    center: bool = False
    """Pixels in -1/2…1/2 instead of 0…1."""
    smooth: bool = False
    """First weights of the convolutions: a blur instead of a single pixel."""
    tau: float = 0.05
    """EMA coefficient of the target encoder φ_m (Eq. 3)."""
    lr: float = 1e-4
    """Learning rate of φ_o."""
    autocast: bool = False
    """Convolutions in bfloat16 while learning: for a GPU; few CPUs have it."""
    method_share: float = 0.0
    """Length of the method's gradient on c against the critic's; 0 for the plain sum of both."""


@dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic (Appendix A and the code base it cites)."""

    hidden: int = 1024
    """Width of the two hidden layers of actor and critics."""
    batch: int = 256
    """Chunks per minibatch, B (preset paper: 256, and 128 for walker_walk)."""
    chunk: int = 2
    """Consecutive transitions per chunk, L."""
    method_batch: int = 1
    """Chunks for the method's loss per chunk for SAC; 2, with L = 1, is the paper's ablation."""
    transitions: str = "first"
    """Transitions of a chunk that SAC learns from: first (B of them) or all (B·L)."""
    n_step: int = 1
    """Rewards that a TD target sums before it bootstraps, n."""
    lr: float = 1e-3
    """Learning rate of the Q-functions and the policy."""
    temperature_lr: float = 1e-4
    """Learning rate of the temperature."""
    init_temperature: float = 0.1
    """First temperature."""
    discount: float = 0.99
    """Discount per agent step."""
    reward_scale: float = 1.0
    """Factor of the (augmented) reward in the TD target."""
    tau: float = 0.01
    """EMA coefficient of the target Q-functions."""
    actor_every: int = 2
    """Updates between two updates of actor and temperature."""
    target_every: int = 2
    """Updates between two updates of the target networks."""
    shift: int = 4
    """Random shift of the images, in pixels either way."""


@dataclass(frozen=True)
class ScheduleConfig:
    """How long, how often, and where."""

    env_steps: int = 500_000
    """Simulator steps of the whole run, action repeat included; the last episode is played out."""
    initial_steps: int = 1000
    """Agent steps with random actions before learning starts."""
    replay_capacity: int = 100_000
    """Frames kept in the replay."""
    eval_every: int = 10_000
    """Simulator steps between two evaluations."""
    eval_episodes: int = 10
    """Episodes per evaluation, with the mean action."""
    eval_process: bool = False
    """Evaluate in a process of its own while learning goes on: for a machine with a free core."""
    checkpoint_every: int = 10_000
    """Simulator steps between two checkpoints; one is written at the next end of an episode."""
    video: bool = True
    """Write a video of the first episode of the last evaluation."""
    track: Tracking = "none"
    """Log to an experiment tracker as well; may change when a run is resumed."""


@dataclass(frozen=True)
class RunConfig:
    """A whole run."""

    seed: int = 1
    """One seed gives one result."""
    method: str = "sibe"
    """What is added to SAC, or an agent of its own."""
    preset: str = "paper"
    """Where the defaults come from: paper, cpu or debug."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, …"""
    threads: int = 0
    """CPU threads for learning; 0 for all cores."""
    env: Annotated[EnvConfig, arg(name="")] = field(default_factory=EnvConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    sac: SACConfig = field(default_factory=SACConfig)
    schedule: Annotated[ScheduleConfig, arg(name="")] = field(default_factory=ScheduleConfig)
    method_config: Any = field(default_factory=SIBEConfig)


def sampling(config: RunConfig) -> Sampling:
    """Return what an update draws from the replay and how often there is one."""
    if config.method in AGENTS:
        own: Sampling = config.method_config.sampling()
        return own
    sac = config.sac
    length = sac.chunk + sac.n_step - 1
    frames = config.env.stack if config.encoder.fusion == "late" else 1
    return Sampling(sac.batch * sac.method_batch, length, sac.shift, 1, frames)


def updates_per_run(config: RunConfig) -> int:
    """Return how many updates a run makes: from the last random agent step on, every so many."""
    agent_steps = -(-config.schedule.env_steps // config.env.action_repeat)
    since = agent_steps - config.schedule.initial_steps
    return since // sampling(config).every + 1 if since >= 0 else 0


def to_json(config: RunConfig) -> dict[str, Any]:
    """Return the config as plain JSON values."""
    values = dataclasses.asdict(config)
    values["encoder"]["strides"] = list(config.encoder.strides)
    return values


def from_json(values: dict[str, Any]) -> RunConfig:
    """Return the config that ``to_json`` wrote; fields that this version lacks are an error."""
    try:
        values = upgraded(values)
        method_class = find_method(values["method"]).config
        parts = {
            "env": EnvConfig,
            "encoder": EncoderConfig,
            "sac": SACConfig,
            "schedule": ScheduleConfig,
            "method_config": method_class,
        }
        built = {name: _build(cls, values[name]) for name, cls in parts.items()}
        config: RunConfig = _build(RunConfig, {**values, **built})
        return config
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"the run's config.json does not fit this version of sibe: {error}"
        ) from error


def upgraded(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of an older version's config as this version would have written them."""
    env, own = values["env"], values["method_config"]
    if env["background"] == "video" and "loop_frames" not in env:  # there was no loop then
        values = {**values, "env": {**env, "background": "video_random"}}
    if values["method"] == "sibe" and "first_std" not in own:
        values = {**values, "method_config": {**own, "first_std": 1.0, "start": "random"}}
    return values


def comparable(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a config in which two configs of one run must agree.

    Fields that came after it was written have their defaults; where the run is tracked is left
    out, as it may change from one resume to the next.
    """
    with contextlib.suppress(UserError):  # not of this version: the comparison says what differs
        values = to_json(from_json(values))
    schedule = values.get("schedule")
    if not isinstance(schedule, dict):
        return values
    return {**values, "schedule": {k: v for k, v in schedule.items() if k != "track"}}


def _build(cls: Any, values: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(cls)
    kept = {}
    for name, value in values.items():
        kept[name] = tuple(value) if isinstance(value, list) else value
        if name in hints and not _fits(hints[name], kept[name]):
            raise TypeError(f"{name} is {value!r}")
    return cls(**kept)


def _fits(hint: Any, value: Any) -> bool:
    """Whether ``value`` is of the type ``hint``; a whole number is a float too."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin is typing.Literal:
        return value in args
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        kinds = args[:1] * len(value) if args[-1] is Ellipsis else args
        return len(value) == len(kinds) and all(map(_fits, kinds, value))
    if origin in (types.UnionType, typing.Union):
        return any(_fits(part, value) for part in args)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, (int, float) if hint is float else hint)
