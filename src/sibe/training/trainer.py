"""The training loop: collect, update, evaluate, checkpoint.

Exact continuation rests on three things. An episode is a function of its number: it starts with a
reset to a seed of its own. Checkpoints are written between episodes, so no simulator state has to
be saved. And what a killed process wrote after its last checkpoint (rows, episode files) is cut
off before the run goes on and is then written again, byte for byte.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from sibe.agents.protocol import Metrics
from sibe.catalogue.build import build_agent
from sibe.catalogue.run_config import sampling
from sibe.config.schema import RunConfig
from sibe.envs.backgrounds.background import BACKGROUND_FRAME
from sibe.envs.seeding import stream_seed
from sibe.errors import UserError
from sibe.logs.csv_log import read_csv
from sibe.replay.episodes import Episode, episode_path, prune, read_episode, write_episode
from sibe.replay.replay import Replay
from sibe.storage import checkpoint
from sibe.storage.run_directory import RunDirectory
from sibe.training.evaluation import make_configured_env
from sibe.training.evaluators import make_evaluator
from sibe.training.recorder import Recorder
from sibe.training.seeding import numpy_state, numpy_stream, restore_numpy, torch_stream

_INTACT = (
    "the last checkpoint is intact; start a new run with lower learning rates or method weights"
)
_COUNTERS = ("env_step", "agent_step", "episode", "next_eval", "next_checkpoint", "last_eval")


class Trainer:
    """A run in progress.

    Args:
        config: the run.
        directory: where it lives; holds its lock.
        recorder: takes rows, metrics and messages.
        device: where the agent learns.
    """

    def __init__(
        self, config: RunConfig, directory: RunDirectory, recorder: Recorder, device: torch.device
    ) -> None:
        self.config, self.directory, self.recorder = config, directory, recorder
        self.env = make_configured_env(config.env, split="train")
        shape, actions = self.env.observation_space.shape, self.env.action_space.shape
        assert shape is not None and actions is not None
        self.action_dim = actions[0]
        generator = torch_stream(config.seed, "agent")
        self.agent = build_agent(config, self.action_dim, generator, device)
        self.policy = self.agent.policy()
        self.evaluator = make_evaluator(config, self.action_dim)
        self.sampling = sampling(config)
        self.replay = Replay(
            config.schedule.replay_capacity,
            (shape[0], shape[1], 3),
            self.action_dim,
            stack=config.env.stack,
            pad=self.sampling.shift,
        )
        self.sample_rng = numpy_stream(config.seed, "replay")
        self.random_rng = numpy_stream(config.seed, "random actions")
        self.act_generator = torch_stream(config.seed, "exploration")
        self.env_step = self.agent_step = self.episode = self.last_eval = 0
        self.next_eval = config.schedule.eval_every
        self.next_checkpoint = config.schedule.checkpoint_every
        self._elapsed, self._started = 0.0, time.perf_counter()
        self.eval_return: float | None = None
        self.evaluating: dict[str, Any] | None = None  # counts of an evaluation being played

    def run(self) -> None:
        """Train from wherever the directory stands to the end."""
        self._resume()
        if self.env_step >= self.config.schedule.env_steps:
            self.recorder.say(f"already finished at env_step {self.env_step}")
            return
        self.recorder.open(self.agent.metric_names(), self.env_step)
        if self.evaluating is not None:  # when the checkpoint was written
            self._begin_evaluation(self.evaluating)
        while self.env_step < self.config.schedule.env_steps:
            self._play_episode()
            if self.env_step >= self.config.schedule.env_steps:
                break
            if self.env_step >= self.next_checkpoint:
                self._save()
        if self.last_eval < self.env_step:
            self._evaluate()
        self._end_evaluation()
        self._save()

    def close(self) -> None:
        """Close the environments."""
        self.env.close()
        self.evaluator.close()

    def _play_episode(self) -> None:
        """Collect one episode, updating on the way, and write it down."""
        started, start_step = time.perf_counter(), self.env_step
        # Each episode before this one showed a first image, and one more after each step.
        shown = self.agent_step + self.episode
        state, _ = self.env.reset(
            seed=stream_seed(self.config.seed, "train", self.episode),
            options={BACKGROUND_FRAME: shown},
        )
        self.replay.start(state[..., -3:])
        self.policy.reset()
        episode_return, metrics, done = 0.0, MeanMetrics(), False
        while not done:
            action = self._choose(state)
            state, reward, terminated, truncated, info = self.env.step(action)
            done = terminated or truncated
            finished = self.replay.add(
                action, float(reward), float(not terminated), state[..., -3:], last=done
            )
            episode_return += float(reward)
            self.agent_step += 1
            self.env_step += info["env_steps"]
            if self._update_is_due():
                metrics.add(self._update())
            if self.env_step >= self.next_eval and not done:
                self._evaluate()
            if self.evaluating is not None and self.evaluator.finished():
                self._end_evaluation()
            self.recorder.tick(self.env_step, self.agent_step, self.agent.updates)
        assert finished is not None
        write_episode(self.directory.replay, self.episode, finished)
        self.episode += 1
        seconds = time.perf_counter() - started
        self.recorder.episode(
            {
                **self._counts(),
                "episode_length": self.env_step - start_step,
                "episode_reward": episode_return,
                "fps": (self.env_step - start_step) / seconds,
                "buffer_size": len(self.replay),
                "updates": self.agent.updates,
                **metrics.means(),
            }
        )
        if self.env_step >= self.next_eval:
            self._evaluate()

    def _choose(self, state: Any) -> Any:
        if self.agent_step < self.config.schedule.initial_steps:
            return self.random_rng.uniform(-1, 1, self.action_dim).astype(np.float32)
        action = self.policy.act(state[None], self.act_generator)[0]
        if not np.isfinite(action).all():  # the losses were finite before the last step
            self._refuse_broken_weights()
            raise UserError(f"the action became non-finite at env_step {self.env_step}; {_INTACT}")
        return action

    def _update_is_due(self) -> bool:
        since = self.agent_step - self.config.schedule.initial_steps
        return since >= 0 and since % self.sampling.every == 0

    def _update(self) -> Metrics:
        chunk = self.replay.minibatch(self.sampling, self.sample_rng)
        metrics = self.agent.update(chunk)
        losses = torch.stack([metrics[name] for name in self.agent.watched])
        if not bool(torch.isfinite(losses).all()):
            bad = [name for name, value in metrics.items() if not torch.isfinite(value).all()]
            raise UserError(
                f"{', '.join(bad)} became non-finite at env_step {self.env_step}; {_INTACT}"
            )
        return metrics

    def _evaluate(self) -> None:
        """Begin an evaluation with the mean action; one that is still being played ends first."""
        self._end_evaluation()
        self._refuse_broken_weights()
        while self.next_eval <= self.env_step:
            self.next_eval += self.config.schedule.eval_every
        self.last_eval = self.env_step
        self._begin_evaluation(self._counts())

    def _begin_evaluation(self, counts: dict[str, Any]) -> None:
        schedule, env_step = self.config.schedule, counts["frame"]
        seeds = [
            stream_seed(self.config.seed, "eval", env_step, i)
            for i in range(schedule.eval_episodes)
        ]
        is_last = env_step >= schedule.env_steps
        self.evaluator.start(self.agent, seeds, record=is_last and schedule.video)
        self.evaluating = counts
        if self.evaluator.finished():
            self._end_evaluation()

    def _end_evaluation(self) -> None:
        """Write both the mean and every return of the evaluation being played, if there is one."""
        if self.evaluating is None:
            return
        episodes, frames = self.evaluator.result()
        counts = {**self.evaluating, "total_time": self.elapsed()}
        self.evaluating = None
        self.eval_return = float(np.mean([e.episode_return for e in episodes]))
        self.recorder.evaluation(counts, episodes)
        if frames:
            self.recorder.video(self.directory.videos / f"eval_{counts['frame']:09d}.mp4", frames)

    def elapsed(self) -> float:
        """Return the seconds of the whole run so far, those before a resume included."""
        return self._elapsed + time.perf_counter() - self._started

    def _counts(self) -> dict[str, Any]:
        return {
            "frame": self.env_step,
            "step": self.agent_step,
            "episode": self.episode,
            "total_time": self.elapsed(),
        }

    def _save(self) -> None:
        """Write a checkpoint, then drop what no checkpoint needs any more."""
        while self.next_checkpoint <= self.env_step:
            self.next_checkpoint += self.config.schedule.checkpoint_every
        self._refuse_broken_weights()
        # With the weights of this checkpoint it can be begun again; with older ones it could not.
        if self.evaluating is not None and self.evaluating["frame"] < self.env_step:
            self._end_evaluation()
        state = {
            "evaluating": self.evaluating,
            "agent": self.agent.state_dict(),
            "replay": self.replay.state(),
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "elapsed": self.elapsed(),
            "logs": self.recorder.positions(),
            "sample_rng": numpy_state(self.sample_rng),
            "random_rng": numpy_state(self.random_rng),
            "act_generator": self.act_generator.get_state(),
        }
        folder = self.directory.checkpoints
        checkpoint.save(folder, self.env_step, state, needs=self.replay.needed_episodes())
        checkpoint.keep_newest(folder)
        prune(self.directory.replay, checkpoint.needed_episodes(folder))

    def _refuse_broken_weights(self) -> None:
        for name, network in self.agent.networks().items():
            if not all(bool(torch.isfinite(p).all()) for p in network.parameters()):
                raise UserError(f"the weights of the {name} became non-finite; {_INTACT}")

    def _resume(self) -> None:
        """Go back to the newest good checkpoint, or to the very beginning."""
        folder = self.directory.checkpoints
        found = checkpoint.load_newest(folder, map_location="cpu", report=self.recorder.say)
        if found is None:
            self._refuse_to_lose_logs()
            self.recorder.rewind({})
            prune(self.directory.replay, set())
            return
        env_step, state = found
        self.agent.load_state_dict(state["agent"])
        self.replay.restore(state["replay"], self._read_episode)
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        self.evaluating = state.get("evaluating")
        self._elapsed, self._started = state["elapsed"], time.perf_counter()
        restore_numpy(self.sample_rng, state["sample_rng"])
        restore_numpy(self.random_rng, state["random_rng"])
        self.act_generator.set_state(state["act_generator"])
        self.recorder.rewind(state["logs"])
        prune(self.directory.replay, checkpoint.needed_episodes(folder))
        self.recorder.say(f"continuing at env_step {env_step}")

    def _refuse_to_lose_logs(self) -> None:
        """A run whose checkpoints were taken away must not begin anew over its results."""
        try:
            frames = read_csv(self.directory.path / "train.csv")["frame"]
        except (UserError, KeyError):  # none yet, or cut short by a kill: nothing to lose
            return
        # One episode may end between the moment a checkpoint is due and the checkpoint.
        if (frames >= self.next_checkpoint).sum() > 1:
            raise UserError(
                f"{self.directory.path} has results but no checkpoint to go on from: put its "
                "checkpoints back, or choose another folder"
            )

    def _read_episode(self, number: int) -> Episode:
        return read_episode(episode_path(self.directory.replay, number))


class MeanMetrics:
    """Running means of metrics; stays on the device until asked."""

    def __init__(self) -> None:
        self._sums: Metrics = {}
        self._count = 0

    def add(self, metrics: Metrics) -> None:
        """Take the metrics of one update."""
        self._count += 1
        for name, value in metrics.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def means(self) -> dict[str, float]:
        """Return the means by name; nothing if there was no update."""
        return {name: float(total) / self._count for name, total in self._sums.items()}
