"""What a run is: frozen dataclasses of checked values.

Each field's docstring is the help text of its command-line flag. ``env_step`` counts simulator
steps including the action repeat, ``agent_step`` counts decisions; every name says which it means.
"""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

from tyro.conf import arg

from sibe.config.values import (
    NON_EMPTY,
    Bounds,
    Count,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    Unit,
    configuration,
)
from sibe.envs.sensors import PIXELS, SensorKind, Sensors
from sibe.envs.tasks import LOOP_FRAMES, MAX_SIZE, BackgroundName
from sibe.errors import UserError
from sibe.logs.tracked_runs import Tracking

MAX_THREADS = 1024
Preset = Literal["paper", "cpu", "debug"]
Determinism = Literal["machine", "portable"]


@configuration()
class EnvConfig:
    """The world: task, what is seen of it, and how often it is acted in."""

    task: str = "cartpole_swingup"
    """DeepMind Control task (see `sibe tasks`) or Gymnasium id."""
    background: BackgroundName = "clean"
    """What is painted behind the robot: clean, noise, video or video_random."""
    size: Annotated[int, Bounds(1, MAX_SIZE)] = 84
    """Height and width of a frame, in pixels."""
    supersample: Count = 1
    """Draw a MuJoCo scene and its background this many times as large, then average the blocks."""
    stack: Count = 3
    """Frames that make a state."""
    action_repeat: Count = 4
    """Simulator steps per agent step (default: the task's default)."""
    camera: int | None = None
    """Index of the camera (default: the task's default)."""
    cameras: tuple[int, ...] = ()
    """Indices of several cameras, in place of one."""
    sensors: Annotated[tuple[SensorKind, ...], NON_EMPTY] = (PIXELS,)
    """What is observed: pixels, state (the robot's own joints and velocities) or both."""
    sensor_dropout: Unit = 0.0
    """Share of a sensor's readings that are hidden while learning; one sensor always stays."""
    clips: str | None = None
    """Clip bank for the video background, made by `sibe videos prepare` (default: generated)."""
    loop_frames: Count = LOOP_FRAMES
    """Length of the loop that the video background plays endlessly."""
    keep_floor: bool = False
    """With a background, leave the floor as it is."""
    noise_wrap: bool = False
    """Noise that wraps around the byte range, as in an older code family."""

    def __post_init__(self) -> None:
        if self.camera is not None and self.cameras:
            raise UserError("--camera is one and --cameras are several: give one of the two")
        Sensors.of(self.sensors, self.cameras)  # refuses what does not go together

    @property
    def seen(self) -> Sensors:
        """The sensors by name."""
        return Sensors.of(self.sensors, self.cameras)


@configuration("encoder")
class EncoderConfig:
    """The convolutional encoder φ (Appendix A)."""

    features: Count = 50
    """Size of the state representation c."""
    filters: Count = 32
    """Channels of each convolution."""
    fusion: Literal["early", "late"] = "early"
    """Where the frames of a state meet: in the first convolution, or after the last."""
    strides: Annotated[tuple[Count, ...], NON_EMPTY] = (2, 1, 1, 1)
    """Stride of each convolution; the paper's text says 1, the code it builds on 2,1,1,1."""
    tanh: bool = False
    """Squash c after its LayerNorm."""
    center: bool = False
    """Pixels in -1/2…1/2 instead of 0…1."""
    chroma: bool = False
    """See color differences alone, R - B and G - (R + B) / 2: brightness is ignored."""
    foreground: bool = False
    """Learn which pixels show the robot, if backgrounds recur, and mask the rest."""
    share_cameras: bool = False
    """With several cameras: one set of convolutions for all of them."""
    smooth: bool = False
    """First weights of the convolutions: a blur instead of a single pixel."""
    tau: Fraction = 0.05
    """EMA coefficient of the target encoder φ_m (Eq. 3)."""
    lr: Positive = 1e-4
    """Learning rate of φ_o."""
    autocast: bool = False
    """Convolutions in bfloat16 while learning: on a GPU, or a CPU with AVX512_BF16."""
    method_weight: Positive = 1.0
    """Factor of the method's gradient on c, where the critic's has 1."""
    method_share: NonNegative = 0.0
    """Length of the method's gradient on c against the critic's, in place of its weight; 0: off."""


@configuration("sac")
class SACConfig:
    """Soft actor-critic (Appendix A and the code base it cites)."""

    hidden: Count = 1024
    """Width of the two hidden layers of actor and critics."""
    batch: Annotated[int, Bounds(2)] = 256
    """Chunks per minibatch, B (preset paper: 256, and 128 for walker_walk)."""
    group: Count = 1
    """Chunks of a minibatch that look alike, so that the background tells none apart; 1 for any."""
    chunk: Count = 2
    """Consecutive transitions per chunk, L."""
    method_batch: Count = 1
    """Chunks for the method's loss per chunk for SAC; 2, with L = 1, is the paper's ablation."""
    transitions: Literal["first", "all"] = "first"
    """Transitions of a chunk that SAC learns from: first (B of them) or all (B·L)."""
    n_step: Count = 1
    """Rewards that a TD target sums before it bootstraps, n."""
    lr: Positive = 1e-3
    """Learning rate of the Q-functions and the policy."""
    temperature_lr: Positive = 1e-4
    """Learning rate of the temperature."""
    init_temperature: Positive = 0.1
    """First temperature."""
    discount: Fraction = 0.99
    """Discount per agent step."""
    reward_scale: Positive = 1.0
    """Factor of the (augmented) reward in the TD target."""
    tau: Fraction = 0.01
    """EMA coefficient of the target Q-functions."""
    replay_ratio: Count = 1
    """Updates after each agent step."""
    actor_every: Count = 2
    """Updates between two updates of actor and temperature."""
    target_every: Count = 2
    """Updates between two updates of the target networks."""
    shift: Natural = 4
    """Random shift of the images, in pixels either way."""


@configuration()
class ScheduleConfig:
    """How long, how often, and where."""

    env_steps: Count = 500_000
    """Simulator steps of the whole run, action repeat included; the last episode is played out."""
    initial_steps: Count = 1000
    """Agent steps with random actions before learning starts."""
    replay_capacity: Count = 100_000
    """Frames kept in the replay."""
    eval_every: Count = 10_000
    """Simulator steps between two evaluations."""
    eval_episodes: Count = 10
    """Episodes per evaluation, with the mean action."""
    eval_process: bool = False
    """Evaluate in a process of its own while learning goes on: for a machine with a free core."""
    checkpoint_every: Count = 10_000
    """Simulator steps between two checkpoints; one is written at the next end of an episode."""
    video: bool = True
    """Write a video of the first episode of the last evaluation."""
    track: Tracking = "none"
    """Log to an experiment tracker as well; may change when a run is resumed."""


@configuration()
class RunConfig:
    """A whole run."""

    seed: Natural = 1
    """One seed gives one result."""
    method: str = "sibe"
    """What is added to SAC, or a standalone agent."""
    preset: Preset = "paper"
    """Where the defaults come from: paper, cpu or debug."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, …"""
    threads: Annotated[int, Bounds(0, MAX_THREADS)] = 0
    """CPU threads for learning; 0 for OMP_NUM_THREADS, or all cores if it is unset."""
    deterministic: Determinism = "machine"
    """machine: one kind of machine repeats its numbers; portable: any x86-64 with AVX2 does."""
    env: Annotated[EnvConfig, arg(name="")] = field(default_factory=EnvConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    sac: SACConfig = field(default_factory=SACConfig)
    schedule: Annotated[ScheduleConfig, arg(name="")] = field(default_factory=ScheduleConfig)
    method_config: Any = None
    """The method's own config; None for its defaults."""
