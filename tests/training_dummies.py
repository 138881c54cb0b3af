"""Stand-ins for the parts of a training run; each writes down what was asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch

from sibe.envs.backgrounds.background import BACKGROUND_FRAME
from sibe.logs.csv_log import LogCopy
from sibe.replay.episodes import Episode
from sibe.training.evaluation import EvalEpisode as Played

FRAME = (4, 5, 2)  # two channels: nothing may count on three
LENGTH, REPEAT = 3, 2  # agent steps of an episode; env steps of an agent step
Event = tuple[Any, ...]
COPY, EARLIER = LogCopy.of(b"frame\n"), LogCopy.of(b"")


class DummyEnv(gym.Env[Any, Any]):
    """Every pixel of its frames is the number of frames shown so far."""

    observation_space = gym.spaces.Box(0, 255, FRAME, np.uint8)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, events: list[Event], *, terminates: bool = False) -> None:
        self.events, self._terminates = events, terminates
        self.actions: list[float] = []
        self._buffer = np.zeros(FRAME, np.uint8)  # drawn into again and again
        self._time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.events.append(("reset", seed, options[BACKGROUND_FRAME]))
        self._time = 0
        self._buffer[:] = options[BACKGROUND_FRAME]
        return self._buffer, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.events.append(("step",))
        self.actions.append(float(action[0]))
        self._time += 1
        self._buffer += 1
        over = self._time == LENGTH
        ends = (over, False) if self._terminates else (False, over)
        return self._buffer, 0.5 * self._time, *ends, {"env_steps": REPEAT}

    def close(self) -> None:
        self.events.append(("close",))


class DummyReplay:
    """Keeps the transitions of the running episode."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.frames: list[npt.NDArray[np.uint8]] = []
        self.steps: list[tuple[float, float, float]] = []
        self.restored: Any = None

    def __len__(self) -> int:
        return len(self.steps)

    def start(self, frame: Any) -> None:
        assert frame.shape == FRAME
        self.frames, self.steps = [frame.copy()], []

    def add(
        self, action: Any, reward: float, discount: float, frame: Any, *, last: bool
    ) -> Episode | None:
        assert frame.shape == FRAME
        self.frames.append(frame.copy())
        self.steps.append((float(action[0]), reward, discount))
        if not last:
            return None
        actions, rewards, discounts = np.array(self.steps, np.float32).T
        return Episode(np.stack(self.frames), actions[:, None], rewards, discounts)

    def minibatch(self, wanted: Any, rng: np.random.Generator) -> float:
        return float(rng.random())

    def needed_episodes(self) -> set[int]:
        return {0}

    def state(self) -> dict[str, Any]:
        return {"kept": 7}

    def restore(self, state: dict[str, Any], read: Any, *, lossy: bool) -> None:
        self.restored = (state, read(0))

    def lost_episodes(self) -> list[int]:
        return []


class DummyPolicy:
    """Draws an action; notes the state it was shown."""

    def __init__(self, events: list[Event]) -> None:
        self.events, self.broken = events, False
        self.shown: list[npt.NDArray[np.uint8]] = []

    def reset(self) -> None:
        self.events.append(("policy reset",))

    def act(
        self,
        obs: Any,
        generator: torch.Generator | None,
        episodes: Sequence[int] | None = None,
        missing: Any = None,
    ) -> npt.NDArray[np.float32]:
        self.events.append(("act",))
        self.shown.append(obs[0].copy())
        action: npt.NDArray[np.float32] = torch.rand(1, 1, generator=generator).numpy()
        return np.full_like(action, np.nan) if self.broken else action


class DummyAgent:
    """Has one weight and two metrics, one of which must be finite."""

    device, action_dim, must_be_finite = torch.device("cpu"), 1, ("loss",)
    foreground = None

    def __init__(self, events: list[Event]) -> None:
        self.events, self.updates = events, 0
        self.drawn: list[float] = []
        self.actor = torch.nn.Linear(1, 1)
        self.own_policy = DummyPolicy(events)
        self.metrics = {"loss": 1.0, "spread": 2.0}

    def policy(self) -> DummyPolicy:
        return self.own_policy

    def metric_names(self) -> list[str]:
        return list(self.metrics)

    def networks(self) -> dict[str, torch.nn.Module]:
        return {"actor": self.actor}

    def update(self, chunk: float) -> dict[str, torch.Tensor]:
        self.events.append(("update",))
        self.drawn.append(chunk)
        self.updates += 1
        return {name: torch.tensor(value * self.updates) for name, value in self.metrics.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]


class DummyRecorder:
    """Keeps the rows."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.rows: list[dict[str, Any]] = []
        self.ticks: list[tuple[int, int, int]] = []

    def rewind(self, logs: dict[str, Any]) -> None:
        self.events.append(("rewind", logs))

    def before_evaluation(self, env_step: int) -> tuple[int, dict[str, LogCopy]]:
        return 0, {"train.csv": COPY, "eval.csv": EARLIER}

    def open(self, metrics: Sequence[str], env_step: int) -> None:
        self.events.append(("open", tuple(metrics), env_step))

    def say(self, text: str) -> None:
        self.events.append(("say", text))

    def tick(self, env_step: int, agent_step: int, updates: int) -> None:
        self.ticks.append((env_step, agent_step, updates))

    def episode(self, row: dict[str, Any]) -> None:
        self.events.append(("row", row["frame"]))
        self.rows.append(row)

    def evaluation(self, counts: dict[str, Any], episodes: Sequence[Played]) -> None:
        self.events.append(("evaluation", counts["frame"], len(episodes)))

    def copies(self) -> dict[str, LogCopy]:
        self.events.append(("checkpoint",))  # they are asked for when one is written
        return {"train.csv": COPY}


class DummyEvaluator:
    """Is done after ``patience`` looks."""

    def __init__(self, events: list[Event], patience: int = 0) -> None:
        self.events, self._patience, self._left = events, patience, 0
        self._seeds: list[int] = []

    def start(self, agent: Any, seeds: Sequence[int], *, record: bool) -> None:
        self.events.append(("evaluate",))
        self._seeds, self._left = list(seeds), self._patience

    def finished(self) -> bool:
        self._left -= 1
        return self._left < 0

    def result(self) -> tuple[list[Played], list[Any]]:
        return [Played(seed, 1.0, 6) for seed in self._seeds], []

    def close(self) -> None:
        self.events.append(("close",))
