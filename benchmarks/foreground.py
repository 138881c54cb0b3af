"""How well the robot is segmented in front of a video (``--encoder.foreground``), task by task.

    python benchmarks/foreground.py --tasks cartpole_swingup walker_walk --clips BANK

Frames come from random actions; training rounds come at the same updates as in a run. Measured on
frames over clips of the evaluation split: the share of the robot's pixels that is kept (recall),
the share of what is kept that is robot (precision), and intersection over union (overlap). Pixels
that always show the robot, such as a rail, do not count.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from sibe.envs.factory import make_env
from sibe.foreground.learner import ForegroundLearner
from sibe.foreground.network import Foreground
from sibe.replay.replay import Replay

INITIAL = 500
"""Agent steps of the cpu preset before its first update."""
JUDGED, EVERY, ALWAYS = 100, 10, 0.9


def training_rounds(env: Any, steps: int, seed: int) -> Iterator[tuple[int, Foreground]]:
    """Play at random; yield agent steps and the network after each training round."""
    replay = Replay(steps + 10, env.observation_space.shape, env.action_space.shape[0], stack=3)
    learner = ForegroundLearner(torch.Generator().manual_seed(seed), torch.device("cpu"))
    rng, over = np.random.default_rng(seed), True
    for step in range(1, steps + 1):
        if over:
            replay.start(env.reset(seed=seed if step == 1 else None)[0])
        action = rng.uniform(-1, 1, env.action_space.shape)
        frame, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        replay.add(action, reward, 1.0, frame, last=over)
        if step > INITIAL and ForegroundLearner.due(step - INITIAL):
            if not learner.learn(replay.stored_frames()):
                print("the round was not accepted: the agent would see whole frames")
            yield step, learner.network


def judged_frames(env: Any) -> tuple[torch.Tensor, np.ndarray]:
    """Return frames of random play and where each shows the robot."""
    rng, over, frames, robots = np.random.default_rng(0), True, [], []
    for step in range(JUDGED * EVERY):
        if over:
            env.reset(seed=1 if step == 0 else None)
        frame, _, terminated, truncated, _ = env.step(rng.uniform(-1, 1, env.action_space.shape))
        over = terminated or truncated
        if step % EVERY == 0:
            frames.append(frame.copy())
            robots.append(env.unwrapped.view.layer[..., 3] > 127)
    return torch.from_numpy(np.stack(frames)), np.stack(robots)


def judge(network: Foreground, frames: torch.Tensor, robots: np.ndarray) -> dict[str, float]:
    """Return recall, precision and overlap, and the share of pixels that count as robot."""
    with torch.no_grad():
        seen = torch.cat([network(frame[None]) > 0 for frame in frames]).numpy()
    counts = robots.mean(0) < ALWAYS
    robots, seen = robots & counts, seen & counts
    both = (robots & seen).sum()
    return {
        "recall": both / robots.sum(),
        "precision": both / max(1, seen.sum()),
        "overlap": both / (robots | seen).sum(),
        "robot": robots.mean(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=["cartpole_swingup"])
    parser.add_argument("--background", default="video")
    parser.add_argument("--clips", help="a bank of clips; else generated ones")
    parser.add_argument("--steps", type=int, default=1500, help="agent steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("foreground"), help="a folder")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with (args.out / "foreground.csv").open("w", newline="") as file:
        table, pictures = csv.writer(file), []
        table.writerow(("task", "agent_steps", "recall", "precision", "overlap", "robot"))
        for task in args.tasks:
            env, other = (
                make_env(task, args.background, stack=1, clips=args.clips, split=split)
                for split in ("train", "eval")
            )
            frames, robots = judged_frames(other)
            for steps, network in training_rounds(env, args.steps, args.seed):
                found = [f"{value:.3f}" for value in judge(network, frames, robots).values()]
                table.writerow((task, steps, *found))
                file.flush()
                print(task, steps, *found, flush=True)
            some = frames[:: JUDGED // 5]
            pictures.append(np.vstack([np.hstack(some), np.hstack(network.masked(some))]))
            env.close()
            other.close()
    Image.fromarray(np.vstack(pictures)).save(args.out / "foreground.png")
