"""The training loop: collect, update, evaluate, checkpoint.

Exact continuation rests on three things. Each episode depends only on its number: it starts with a
reset to a seed of its own. Checkpoints are written between episodes, so no simulator state has to
be saved. And what a killed process wrote after its last checkpoint (rows, episode files) is cut
off before the run goes on and is then written again, byte for byte.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import torch

from sibe.agents.modules import broken_network
from sibe.agents.protocol import Agent, Metrics
from sibe.catalogue.run_config import kept_hash, sampling, to_json
from sibe.config.schema import RunConfig
from sibe.envs.seeding import stream_seed
from sibe.errors import UserError
from sibe.logs.csv_log import LogCopy
from sibe.logs.csv_sink import known_logs
from sibe.replay.episodes import EpisodeError
from sibe.replay.replay import Replay
from sibe.storage import checkpoint
from sibe.storage.run_directory import RunDirectory
from sibe.training.callbacks import Callback, Evaluation
from sibe.training.checkpoint_state import OtherConfigError, check_state, refuse_other_config
from sibe.training.checkpoints import Checkpoints
from sibe.training.collector import Collector, FinishedEpisode, NonFiniteAction
from sibe.training.evaluation import frame_rate
from sibe.training.evaluators import Evaluator
from sibe.training.foreground import train_foreground_if_due
from sibe.training.garbage import only_new_garbage
from sibe.training.mean_metrics import MeanMetrics
from sibe.training.recorder import Recorder
from sibe.training.seeding import numpy_state, numpy_stream, restore_numpy

_INTACT = (
    "the last checkpoint is intact; start a new run with lower learning rates or method weights"
)
_COUNTERS = ("next_eval", "next_checkpoint", "last_eval")


class Trainer:
    """A run in progress.

    Args:
        config: the run.
        env: is learned from; observes single frames.
        agent: learns.
        replay: empty, for the frames of ``env``.
        recorder: takes rows, metrics and messages.
        evaluator: plays evaluation episodes.
        directory: where the run lives; holds its lock.
        callbacks: are told of what happens, and may stop the run.
    """

    def __init__(
        self,
        config: RunConfig,
        env: gym.Env[Any, Any],
        agent: Agent,
        replay: Replay,
        recorder: Recorder,
        evaluator: Evaluator,
        directory: RunDirectory,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.config, self.env, self.agent, self.replay = config, env, agent, replay
        self.recorder, self.evaluator, self.directory = recorder, evaluator, directory
        self.collector = Collector(
            env,
            agent.policy(),
            replay,
            stack=config.env.stack,
            seed=config.seed,
            initial_steps=config.schedule.initial_steps,
        )
        self.checkpoints = Checkpoints(directory)
        self.sampling = sampling(config)
        self.sample_rng = numpy_stream(config.seed, "replay")
        self.next_eval = config.schedule.eval_every
        self.next_checkpoint = config.schedule.checkpoint_every
        self.last_eval = 0
        self.evaluating: dict[str, Any] | None = None  # counts of an evaluation being played
        self.callbacks, self.stopping = callbacks, False
        self._elapsed, self._started = 0.0, time.perf_counter()
        self._config_hash = kept_hash(directory.read_config())
        self._episodes_are_damaged = False  # those of a checkpoint that was passed over

    def run(self) -> None:
        """Train from wherever the directory stands to the end."""
        self._resume()
        if self.env_step >= self.config.schedule.env_steps:
            self.recorder.say(f"already finished at env_step {self.env_step}")
            return
        self.recorder.open(self.agent.metric_names(), self.env_step)
        with only_new_garbage():
            self._run()

    def _run(self) -> None:
        if self.evaluating is not None:  # when the checkpoint was written
            self._begin_evaluation(self.evaluating)
        while self.env_step < self.config.schedule.env_steps:
            self._play_episode()
            if self.env_step >= self.config.schedule.env_steps:
                break
            if self.stopping or self.env_step >= self.next_checkpoint:
                self.save()
            if self.stopping:
                self.recorder.say(f"stopped by a callback at env_step {self.env_step}")
                return
        if self.last_eval < self.env_step:
            self.evaluate()
        self._end_evaluation()
        self.save()

    def close(self) -> None:
        """Close the environments."""
        self.env.close()
        self.evaluator.close()

    @property
    def env_step(self) -> int:
        """Simulator steps so far, action repeat included."""
        return self.collector.env_step

    @property
    def agent_step(self) -> int:
        """Decisions so far."""
        return self.collector.agent_step

    @property
    def episode(self) -> int:
        """Training episodes finished so far."""
        return self.collector.episode

    def _tell(self, call: Callable[[Callback], bool | None]) -> None:
        for callback in self.callbacks:
            answer = call(callback)
            if answer is not None and not answer:
                self.stopping = True

    def elapsed(self) -> float:
        """Return the seconds of the whole run so far, those before a resume included."""
        return self._elapsed + time.perf_counter() - self._started

    def _play_episode(self) -> None:
        """Collect one episode, updating on the way, and write it down."""
        started, metrics, finished = time.perf_counter(), MeanMetrics(), None
        while finished is None:
            finished = self._collect()
            for _ in range(self._updates_due()):
                metrics.add(self._update())
            if self.env_step >= self.next_eval and finished is None:
                self.evaluate()
            if self.evaluating is not None and self.evaluator.finished():
                self._end_evaluation()
            self.recorder.tick(self.env_step, self.collector.agent_step, self.agent.updates)
            self._tell(lambda callback: callback.after_step(self))
        assert finished.stored is not None
        self.checkpoints.write_episode(finished.number, finished.stored)
        seconds = time.perf_counter() - started
        row = {
            **self._counts(),
            "episode_length": finished.env_steps,
            "episode_reward": finished.episode_return,
            "fps": finished.env_steps / seconds,
            "buffer_size": len(self.replay),
            "updates": self.agent.updates,
            **metrics.means(),
        }
        self.recorder.episode(row)
        self._tell(lambda callback: callback.after_episode(self, row))
        if self.env_step >= self.next_eval:
            self.evaluate()

    def _collect(self) -> FinishedEpisode | None:
        try:
            return self.collector.step()
        except NonFiniteAction as error:  # the losses were finite before the last update
            self._refuse_broken_weights()
            raise UserError(f"{error}; {_INTACT}") from error

    def _updates_due(self) -> int:
        since = self.collector.agent_step - self.config.schedule.initial_steps
        return self.sampling.updates if since >= 0 and since % self.sampling.every == 0 else 0

    def _update(self) -> Metrics:
        if (news := train_foreground_if_due(self.agent, self.replay, self.env_step)) is not None:
            self.recorder.say(news)
        chunk = self.replay.minibatch(self.sampling, self.sample_rng)
        metrics = self.agent.update(chunk)
        losses = torch.stack([metrics[name] for name in self.agent.must_be_finite])
        if not bool(torch.isfinite(losses).all()):
            bad = [name for name, value in metrics.items() if not torch.isfinite(value).all()]
            raise UserError(
                f"{', '.join(bad)} became non-finite at env_step {self.env_step}; {_INTACT}"
            )
        return metrics

    def _refuse_broken_weights(self) -> None:
        if (name := broken_network(self.agent.networks())) is not None:
            raise UserError(f"the weights of the {name} became non-finite; {_INTACT}")

    def evaluate(self) -> None:
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
        self.recorder.evaluation(counts, episodes)
        if frames:
            path = self.directory.videos / f"eval_{counts['frame']:09d}.mp4"
            self.recorder.video(path, frames, frame_rate(self.env))
        evaluation = Evaluation(counts["frame"], episodes)
        self._tell(lambda callback: callback.after_evaluation(self, evaluation))

    def _counts(self) -> dict[str, Any]:
        return {
            "frame": self.env_step,
            "step": self.collector.agent_step,
            "episode": self.collector.episode,
            "total_time": self.elapsed(),
        }

    def save(self) -> None:
        """Write a checkpoint."""
        while self.next_checkpoint <= self.env_step:
            self.next_checkpoint += self.config.schedule.checkpoint_every
        self._refuse_broken_weights()
        # With the weights of this checkpoint it can be begun again; with older ones it could not.
        if self.evaluating is not None and self.evaluating["frame"] < self.env_step:
            self._end_evaluation()
        self._write(self._state(), self.recorder.copies())
        self._tell(lambda callback: callback.after_checkpoint(self))

    def _write(self, state: dict[str, Any], copies: Mapping[str, LogCopy]) -> None:
        self.checkpoints.save(
            self.env_step,
            {**state, "logs": {name: [*copy] for name, copy in copies.items()}},
            needs=self.replay.needed_episodes(),
            logs={name: (copy.size, copy.sha256) for name, copy in copies.items()},
            config=self._config_hash,
        )

    def _resume(self) -> None:
        """Go back to the newest good checkpoint, or to the very beginning."""
        found = self._load()
        if found is None:
            self.checkpoints.refuse_to_lose_logs(self.next_checkpoint)
            self._extend()
            self.recorder.rewind({})
            self.checkpoints.prune_episodes()
            return
        env_step, state = found
        if not self._extend():
            self._name_other_length(state)
        self.recorder.rewind(known_logs(state["logs"]))
        if self.last_eval == env_step < self.config.schedule.env_steps:
            self._take_back_the_end(env_step, state)
        self.checkpoints.prune_episodes()
        if lost := self.replay.lost_episodes():
            self.recorder.say(
                f"note: the replay goes on without episodes that are missing or damaged "
                f"({', '.join(map(str, lost))}): the run will not end with the same numbers bit "
                "for bit"
            )
        self.recorder.say(f"continuing at env_step {env_step}")

    def _extend(self) -> bool:
        env_steps = self.config.schedule.env_steps
        if not self.directory.extend(env_steps):
            return False
        self.recorder.say(f"the run is extended to {env_steps} env steps")
        return True

    def _name_other_length(self, state: dict[str, Any]) -> None:
        """Say so if config.json was edited, or extended by a process that saved nothing since."""
        if "config" not in state:  # by an older version
            return
        before, now = json.loads(state["config"])["schedule"], self.config.schedule
        if before["env_steps"] != now.env_steps:
            self.recorder.say(
                f"note: config.json asks for {now.env_steps} env steps, and for "
                f"{before['env_steps']} when the checkpoint was written"
            )

    def _take_back_the_end(self, env_step: int, state: dict[str, Any]) -> None:
        """Drop what only the end of a run has, so that one can be extended.

        That is the video, and the evaluation at the last env step if none was due there. The
        checkpoint is replaced first: whatever happens in between, it fits the logs.
        """
        for video in self.directory.list_videos():
            video.unlink()
        before, copies = self.recorder.before_evaluation(env_step)
        every = self.config.schedule.eval_every
        if before // every < env_step // every:  # it was due
            return
        self.last_eval = before
        self._write({**state, "counters": {**state["counters"], "last_eval": before}}, copies)
        self.recorder.rewind(copies)

    def _load(self) -> tuple[int, dict[str, Any]] | None:
        """Restore the newest good checkpoint; one without all its episodes if there is no other."""
        try:
            return self.checkpoints.load(self._use, self.recorder.say)
        except checkpoint.AllDamagedError:
            if not self._episodes_are_damaged:
                raise
            return self.checkpoints.load(partial(self._use, lossy=True), lambda line: None)

    def _use(self, env_step: int, state: dict[str, Any], *, lossy: bool = False) -> None:
        """Restore ``state``, which may be anything; what it leaves behind the next one replaces."""
        try:
            counters = {*self.collector.state()["counters"], *_COUNTERS}
            check_state(state, env_step, counters, self.agent.state_dict())
            known_logs(state["logs"])
            if "config" in state:  # not by an older version
                refuse_other_config(state["config"], self.config, self.directory.config_json)
            self._restore(state, lossy=lossy)
            if (name := broken_network(self.agent.networks())) is not None:
                raise ValueError(f"the weights of the {name} are not finite")
            if lossy and not self.replay.can_sample(self.sampling.length, self.sampling.least):
                raise ValueError("no episode is left to learn from")
        except (OSError, MemoryError, OtherConfigError):
            raise
        except Exception as error:  # whatever an odd state leads to
            self._episodes_are_damaged |= isinstance(error, EpisodeError)
            reason = str(error) if isinstance(error, UserError) else f"{error!r}"
            raise checkpoint.Damaged(reason.partition("\n")[0][:200]) from error

    def _state(self) -> dict[str, Any]:
        collected = self.collector.state()
        own = {name: getattr(self, name) for name in _COUNTERS}
        return {
            **collected,
            "counters": {**collected["counters"], **own},
            "evaluating": self.evaluating,
            "agent": self.agent.state_dict(),
            "replay": self.replay.state(),
            "elapsed": self.elapsed(),
            "config": json.dumps(to_json(self.config)),
            "sample_rng": numpy_state(self.sample_rng),
        }

    def _restore(self, state: dict[str, Any], *, lossy: bool) -> None:
        self.agent.load_state_dict(state["agent"])
        self.replay.restore(state["replay"], self.checkpoints.read_episode, lossy=lossy)
        self.collector.restore(state)
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        self.evaluating = state.get("evaluating")
        self._elapsed, self._started = state["elapsed"], time.perf_counter()
        restore_numpy(self.sample_rng, state["sample_rng"])
