"""`sibe eval`: play episodes with a trained agent, also elsewhere than where it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from tyro.conf import Positional, UseAppendAction

from sibe.config.values import Bounds, Count, Natural, configuration

VideoSize = Annotated[int, Bounds(16, 1080)]


@configuration()
class Evaluate:
    """Evaluate a trained agent with its mean action."""

    run_: Positional[Path]
    """A run directory, an export or hf://user/name."""
    episodes: Count = 10
    """How many episodes."""
    seed: Natural = 0
    """Which episodes; evaluation seeds are not training seeds."""
    task: str | None = None
    """Another task than it was trained on (same number of actions)."""
    background: str | None = None
    """Another background than it was trained with: clean, noise, video or video_random."""
    clips: str | None = None
    """Another clip bank."""
    drop: UseAppendAction[tuple[str, ...]] = ()
    """Share of a sensor's readings that are missing, as pixels=0.3; may be given several times."""
    freeze: UseAppendAction[tuple[str, ...]] = ()
    """Share of the steps at which a sensor repeats its last reading, as pixels=0.3."""
    noisy: UseAppendAction[tuple[str, ...]] = ()
    """Standard deviation of noise on a sensor, as pixels=0.1 (of the range) or state=0.5."""
    video: Path | None = None
    """Write the first episode to this mp4 file, in real time."""
    video_size: VideoSize | None = None
    """Render the video at this size, in pixels (default: the frames that the policy sees)."""
    device: str = "auto"
    """auto, cpu, cuda, …"""
    allow_import: bool = False
    """Let the run's task import the module that it names (module:Name-v0)."""

    def run(self) -> int:
        """Print every return, then mean and standard deviation."""
        from sibe.envs.sensor_space import state_size
        from sibe.envs.tasks import check_background, check_clips
        from sibe.errors import UserError
        from sibe.logs.amounts import count
        from sibe.logs.video import check_mp4, write_mp4
        from sibe.policy.distorted_sensors import DistortedSensors
        from sibe.policy.dropped_sensors import with_drops
        from sibe.policy.load import load_policy
        from sibe.policy.sensor_amounts import parse_shares, parse_sizes
        from sibe.training.evaluation import (
            MOST_ENVS,
            Frame,
            evaluate,
            frame_rate,
            make_eval_envs,
            numbered_seeds,
        )

        if self.video:
            check_mp4(self.video)
        elif self.video_size is not None:
            raise UserError("--video-size is the size of a video: name its file with --video")
        allowed = self.allow_import or self.task is not None  # then the run's own is not made
        policy = load_policy(self.run_, device=self.device, allow_import=allowed)
        trained = policy.config.env
        env = replace(
            trained,
            task=self.task or trained.task,
            background=check_background(self.background or trained.background),
            clips=self.clips or trained.clips,
        )
        check_clips(env.background, self.clips)
        shares = parse_shares("--drop", self.drop, trained.seen)
        frozen = parse_shares("--freeze", self.freeze, trained.seen)
        noise = parse_sizes("--noisy", self.noisy, trained.seen)
        player = with_drops(policy, shares, self.seed) if shares else policy.agent.policy()
        if frozen or noise:
            player = DistortedSensors(player, frozen, noise, self.seed)
        envs = make_eval_envs(env, min(self.episodes, MOST_ENVS))
        try:
            actions = envs[0].action_space.shape
            if actions != (policy.agent.action_dim,):
                raise UserError(
                    f"{env.task} has {count(actions[0] if actions else 0, 'action')}, "
                    f"the agent was trained with {policy.agent.action_dim}"
                )
            size = state_size(envs[0].observation_space)
            if size != policy.agent.state_size:
                raise UserError(
                    f"{env.task} has a state of {size} numbers, "
                    f"the agent was trained with {policy.agent.state_size}"
                )
            frames: list[Frame] | None = [] if self.video else None
            seeds = numbered_seeds(self.seed, self.episodes)
            results = evaluate(
                player,
                envs,
                seeds,
                record=frames,
                video_size=self.video_size,
                fixed_batch=True,
            )
            fps = frame_rate(envs[0])
        finally:
            for one in envs:
                one.close()
        for number, episode in enumerate(results):
            print(f"episode {number}: return {episode.episode_return:.1f}")
        returns = [episode.episode_return for episode in results]
        failures = _failures(shares, frozen, noise)
        print(
            f"{env.task} ({env.background}{failures}), agent at env_step {policy.env_step}: "
            f"return {np.mean(returns):.1f} ± {np.std(returns):.1f} "
            f"over {count(len(returns), 'episode')}"
        )
        if self.video and frames is not None:
            write_mp4(self.video, frames, fps)
            print(f"wrote {self.video}")
        return 0


def _failures(
    missing: Mapping[str, float], frozen: Mapping[str, float], noise: Mapping[str, float]
) -> str:
    """Return what is wrong with the sensors, in words after a comma; "" if nothing."""
    words = [
        *(f"{share:.0%} of {name} missing" for name, share in missing.items()),
        *(f"{share:.0%} of {name} frozen" for name, share in frozen.items()),
        *(f"noise of {std:g} on {name}" for name, std in noise.items()),
    ]
    return "".join(f", {one}" for one in words)
