"""The paper's embedding figure: observations on a grid, neighbors where their latents are near.

A representation of the robot alone puts images of one pose side by side, whatever is behind it,
and images of one background far apart when the poses differ. Both kinds of pairs are made on
purpose, one of each is marked, and the mean distance of all of them is told beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from sibe.analysis.representation.grid import Cells, distances, to_grid, tsne
from sibe.analysis.representation.grid_picture import MarkedPair, draw_grid
from sibe.analysis.representation.latents import low_frequencies, represent
from sibe.analysis.representation.pairs import (
    COPIES,
    Indices,
    Layout,
    crossed_layout,
    most_different,
    plain_layout,
    spread_out,
)
from sibe.analysis.representation.probe_dataset import (
    Floats,
    ProbeDataset,
    collect,
    observations,
    pose_features,
)
from sibe.config.schema import EnvConfig
from sibe.envs.frame_stack import newest_frames
from sibe.envs.seeding import stream_seed
from sibe.errors import UserError
from sibe.logs.picture_file import check_png, write_png
from sibe.policy.trained_policy import TrainedPolicy
from sibe.training.seeding import numpy_stream

COLUMNS, ROWS = 20, 15
_MOMENTS = 50  # kept of each episode
_IN_VIEW = 0.4  # share of the robot's usual size, below which it counts as out of view
_MOST_BYTES = 2e6  # of a picture in full color; noise does not compress


class Grid(NamedTuple):
    """One written picture and the mean distances in it, in cells."""

    path: Path
    latent: str
    same_pose: float
    same_background: float
    any_two: float


def write_grids(
    policy: TrainedPolicy, env: EnvConfig, out: Path, *, episodes: int, seed: int
) -> list[Grid]:
    """Write a grid for each representation: ``out`` is the method's (or c), ``out``_c is c.

    Args:
        policy: plays, and represents.
        env: where; its task is the policy's, its background may be another.
        out: a PNG file.
        episodes: how many are played.
        seed: which.
    """
    check_png(out)
    if not env.seen.pixels:
        raise UserError("the grid shows what the policy sees, and this one sees no pixels")
    moments = collect(env, policy, episodes=episodes, each=_MOMENTS, seed=seed)
    layout = _lay_out(moments, numpy_stream(seed, "grid"))
    states = observations(moments, layout.poses, layout.backgrounds)
    latents = represent(policy.agent, states)
    pixels = states if env.seen.bare else states[env.seen.views[0]]
    grids = []
    for number, (name, values) in enumerate(latents.items()):
        path = out if number == 0 else out.with_name(f"{out.stem}_{name}.png")
        cells = to_grid(tsne(values, stream_seed(seed, "t-SNE")), COLUMNS, ROWS)
        grid = _measure(path, name, cells, layout)
        figure = draw_grid(
            newest_frames(pixels, 1, stack=env.stack),
            cells,
            title=_title(policy, env, name),
            subtitle=f"t-SNE of {name} ({values.shape[1]} numbers), "
            f"put on a grid of {COLUMNS} × {ROWS} by exact assignment",
            marks=_marks(moments, layout, cells, grid),
            note=_note(layout, grid),
        )
        write_png(figure, path, most_bytes=_MOST_BYTES)
        grids.append(grid)
    return grids


def _lay_out(moments: ProbeDataset, rng: np.random.Generator) -> Layout:
    cells = COLUMNS * ROWS
    count = cells if moments.pictures is None else cells // COPIES
    if len(moments.episode) < count:
        have = len(moments.episode)
        raise UserError(f"{have} moments are too few for a grid: play more with --episodes")
    candidates = in_view(moments.robot, count)
    poses = candidates[spread_out(pose_features(moments)[candidates], count)]
    if moments.pictures is None:
        return plain_layout(poses)
    return crossed_layout(poses, rng.choice(len(moments.episode), count, replace=False), rng)


def in_view(robot: Floats, count: int) -> Indices:
    """Return the moments whose robot is in view; of the others only as many as ``count`` needs.

    Args:
        robot: ``[N]`` share of the picture that it covers; NaN where that is not known.
        count: how many there must be, at least.
    """
    if np.isnan(robot).any():
        return np.arange(len(robot))
    enough = _IN_VIEW * np.quantile(robot, 0.9)  # most moments may have been out of view
    return np.flatnonzero(robot >= min(enough, np.sort(robot)[-count]))


def _measure(path: Path, name: str, cells: Cells, layout: Layout) -> Grid:
    everyone = np.stack(np.triu_indices(len(cells), 1), axis=1)

    def mean(pairs: Cells) -> float:
        return float(distances(cells, pairs).mean()) if len(pairs) else float("nan")

    return Grid(path, name, mean(layout.same_pose), mean(layout.same_background), mean(everyone))


def _marks(moments: ProbeDataset, layout: Layout, cells: Cells, grid: Grid) -> list[MarkedPair]:
    """MarkedPair the pair of one pose whose backgrounds differ most, and the other way round.

    Only robots that are well in view are marked: the poses that differ most may be two in which
    it has left the picture.
    """
    if moments.pictures is None:
        return []
    behind = low_frequencies(moments.pictures[:, -1])[layout.backgrounds]
    pose = pose_features(moments)[layout.poses]
    robot = moments.robot[layout.poses]
    large = robot >= np.median(robot)

    def mark(pairs: Cells, features: Floats, title: str, kind: str, mean: float) -> MarkedPair:
        clear = pairs[large[pairs].all(axis=1)]
        pair = most_different(clear if len(clear) else pairs, features)
        apart = distances(cells, np.array([pair]))[0]
        text = (
            f"these two: {apart:.1f} cells apart\n"
            f"all {len(pairs)} pairs of one {kind}:\n{mean:.1f} on average"
        )
        return MarkedPair(pair, title, text)

    return [
        mark(layout.same_pose, behind, "same pose,\nother background", "pose", grid.same_pose),
        mark(
            layout.same_background,
            pose,
            "same background,\nother pose",
            "background",
            grid.same_background,
        ),
    ]


def _title(policy: TrainedPolicy, env: EnvConfig, latent: str) -> str:
    run = policy.config
    parts = (
        f"{latent} of {run.method}",
        f"{env.task} ({env.background})",
        f"seed {run.seed}",
        f"{policy.env_step} env steps",
    )
    return "  ·  ".join(parts)


def _note(layout: Layout, grid: Grid) -> str:
    if not len(layout.same_pose):
        return (
            "Images from evaluation episodes, every second one with random actions.\n"
            "The background is clean: no two images differ in it, so no pair is marked.\n"
            "Try --background video."
        )
    return (
        "Each pose is shown before three backgrounds, each\n"
        "background behind three poses, all from evaluation\n"
        "episodes, every second one with random actions. The\n"
        "marked pairs are chosen by simulator state and picture,\n"
        "not by their place in the grid.\n"
        f"Any two cells: {grid.any_two:.1f} apart on average."
    )
