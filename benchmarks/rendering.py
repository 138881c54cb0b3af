"""Frames per setting: stock dm_control against sibe, task by task, in one run.

Stock has a process of its own, with Mesa's threads as they come: one image for the clean setting,
one image and one segmentation for the painted ones. Ours is everything up to the finished frame.
Both see the same states (one seed, the same actions) and work in turns, never at the same time;
a ratio is taken in every round, and the median of the ratios is printed.

    python benchmarks/rendering.py [--rounds 11] [--frames 8] [--tasks TASK …] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from sibe.envs.tasks import BACKGROUNDS, PAPER_TASKS, SUITE_TASKS

SIZE = 84
BARS = {"clean": 2.5, "noise": 8.0, "video": 8.0}
STRIDE = 10  # control steps from frame to frame


class Run:
    """A task under random actions, the same for everyone who makes one."""

    def __init__(self, suite: Any, task: str) -> None:
        spec = SUITE_TASKS[task]
        self.camera = spec.camera
        self._env = suite.load(spec.domain, spec.task, task_kwargs={"random": 0})
        self._env.reset()
        self._rng = np.random.default_rng(0)
        self.physics = self._env.physics

    def advance(self) -> None:
        limits = self._env.action_spec()
        for _ in range(STRIDE):
            self._env.step(self._rng.uniform(limits.minimum, limits.maximum, limits.shape))


def milliseconds(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return 1e3 * (time.perf_counter() - start), result


def stock_frames(task: str) -> Callable[[], tuple[dict[str, float], Any]]:
    from dm_control import suite

    run = Run(suite, task)

    def draw(**options: Any) -> Any:
        return run.physics.render(SIZE, SIZE, camera_id=run.camera, **options)

    def frame() -> tuple[dict[str, float], Any]:
        clean, image = milliseconds(draw)
        painted = clean + milliseconds(lambda: draw(segmentation=True))[0]
        run.advance()
        return {"clean": clean, "noise": painted, "video": painted}, image

    return frame


def our_frames(task: str) -> Callable[[], tuple[dict[str, float], Any]]:
    from sibe.envs.backgrounds.background import Noise, Video, compose
    from sibe.envs.rendering import gl
    from sibe.envs.rendering.renderer import Renderer, background_geoms

    run, rng = Run(gl.load_suite(), task), np.random.default_rng(0)
    model, data = run.physics.model.ptr, run.physics.data.ptr
    clean = Renderer(model, data, SIZE, SIZE, run.camera, None)
    painted = Renderer(model, data, SIZE, SIZE, run.camera, background_geoms(model))
    noise, video = Noise(SIZE, SIZE), Video(None, "train", SIZE, SIZE)
    video.reset(rng)

    def frame() -> tuple[dict[str, float], Any]:
        times = {}
        times["clean"], image = milliseconds(lambda: np.ascontiguousarray(clean.rgb()))
        times["noise"], _ = milliseconds(lambda: compose(painted.rgba(), noise.next(rng)))
        times["video"], _ = milliseconds(lambda: compose(painted.rgba(), video.next(rng)))
        robot = painted.rgba()
        run.advance()
        return times, (image, robot)

    return frame


SIDES = {"stock": stock_frames, "ours": our_frames}


def work(side: str, task: str, pipe: Connection) -> None:
    """Draw as many frames as the pipe asks for; answer with times and pictures."""
    frame = SIDES[side](task)
    frame()  # contexts and caches are made with the first
    while count := pipe.recv():
        pipe.send([frame() for _ in range(count)])


def start(side: str, task: str) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(side, task, there), daemon=True)
    process.start()
    there.close()  # so that a worker that dies is noticed
    return process, here


def measure(task: str, rounds: int, frames: int) -> dict[str, dict[str, float]]:
    """Return for each setting the times [ms], their ratio and the difference of the pictures."""
    workers = {side: start(side, task) for side in SIDES}
    times: dict[str, dict[str, list[float]]] = {s: {b: [] for b in BACKGROUNDS} for s in SIDES}
    clean, robot = [], []
    for _ in range(rounds):
        answers = {}
        for side, (_, pipe) in workers.items():
            pipe.send(frames)
            answers[side] = pipe.recv()
            for name in BACKGROUNDS:
                times[side][name].append(float(np.median([t[name] for t, _ in answers[side]])))
        for (_, stock), (_, (ours, rgba)) in zip(answers["stock"], answers["ours"], strict=True):
            clean.append(abs(ours.astype(int) - stock).mean())
            whole = rgba[..., 3] == 255
            robot.append(abs(rgba[whole][:, :3].astype(int) - stock[whole]).ravel())
    for process, pipe in workers.values():
        pipe.send(0)
        process.join()
    differences = {"clean": np.mean(clean), "noise": np.mean(np.concatenate(robot))}
    differences["video"] = differences["noise"]
    return {
        name: {
            "stock_ms": float(np.median(times["stock"][name])),
            "ours_ms": float(np.median(times["ours"][name])),
            "ratio": float(np.median(np.divide(times["stock"][name], times["ours"][name]))),
            "bar": BARS[name],
            "difference": float(differences[name]),
        }
        for name in BACKGROUNDS
    }


def show(task: str, rows: dict[str, dict[str, float]]) -> list[str]:
    """Print the rows of a task; return the settings that are below their bar."""
    low = []
    for name, row in rows.items():
        mark = ""
        if row["ratio"] < row["bar"]:
            low.append(f"{task} {name}")
            mark = f"  below {row['bar']}×"
        times = f"{row['stock_ms']:7.2f} {row['ours_ms']:7.2f} {row['ratio']:6.1f}×"
        print(f"{task:26s} {name:8s} {times} {row['difference']:11.2f}{mark}", flush=True)
    return low


def main() -> int:
    parser = argparse.ArgumentParser(description="Rendering: stock dm_control against sibe.")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--frames", type=int, default=8, help="per round")
    parser.add_argument("--tasks", nargs="+", default=PAPER_TASKS, metavar="TASK")
    parser.add_argument("--json", type=Path, help="write the numbers to this file, too")
    args = parser.parse_args()
    os.environ.pop("LP_NUM_THREADS", None)  # stock as a user has it; our side sets its own
    os.environ.setdefault("MUJOCO_GL", "egl")
    print(f"{SIZE}×{SIZE}, {args.rounds} rounds of {args.frames} frames, ms per frame")
    print("difference (of 255): whole picture for clean, robot pixels for noise and video")
    print(f"{'task':26s} {'setting':8s} {'stock':>7s} {'ours':>7s} {'ratio':>7s}  difference")
    results, low = {}, []
    for task in args.tasks:
        results[task] = measure(task, args.rounds, args.frames)
        low += show(task, results[task])
    if args.json:
        packages = {name: version(name) for name in ("mujoco", "dm_control", "numpy")}
        about = {"size": SIZE, "cores": os.cpu_count(), "machine": platform.machine(), **packages}
        args.json.write_text(json.dumps({**about, "tasks": results}, indent=1) + "\n")
    print(f"below the bar: {', '.join(low)}" if low else "all are above their bars")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
