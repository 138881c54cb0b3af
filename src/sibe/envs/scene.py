"""What is changed in MuJoCo's list of things to draw, between its filling and the drawing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt


def has_glass(model: Any) -> bool:
    """Tell whether anything in the model is translucent."""
    colours = (model.geom_rgba, model.site_rgba, model.mat_rgba, model.tendon_rgba)
    return any(bool(((rgba[:, 3] > 0) & (rgba[:, 3] < 1)).any()) for rgba in colours)


def make_opaque(scene: Any) -> None:
    """Draw translucent things opaque, so that what is painted behind the robot stays behind it.

    MuJoCo blends alpha like a colour: glass of alpha a leaves a coverage of a² on an empty pixel,
    and makes a hole of a − a² in what it covers.
    """
    for geom in scene.geoms[: scene.ngeom]:
        if 0 < geom.rgba[3] < 1:
            geom.rgba[3] = 1


def simplify_tendons(mujoco: Any, scene: Any) -> None:
    """Draw each tendon with as few segments as keep it within its own radius of the original.

    MuJoCo draws a slack tendon as thirty capsules, which then cost more than the robot.
    """
    tendon = int(mujoco.mjtObj.mjOBJ_TENDON)
    segments = [g for g in scene.geoms[: scene.ngeom] if g.objtype == tendon]
    if len(segments) < 3:
        return
    half = np.array([g.mat[:, 2] * g.size[2] for g in segments], np.float64)
    centre = np.array([g.pos for g in segments], np.float64)
    start, end = centre - half, centre + half
    radius = np.array([g.size[0] for g in segments], np.float64)
    owner = np.array([g.objid for g in segments])
    gap = np.abs(start[1:] - end[:-1]).max(axis=1) > radius[1:]
    cuts = np.flatnonzero(gap | (owner[1:] != owner[:-1])) + 1
    for run in np.split(np.arange(len(segments)), cuts):
        joints = np.concatenate([start[run[:1]], end[run]])
        kept = corners(joints, float(radius[run[0]]))
        for first, last in pairwise(kept):
            head = segments[run[first]]
            mujoco.mjv_connector(
                head, mujoco.mjtGeom.mjGEOM_CAPSULE, radius[run[0]], joints[first], joints[last]
            )
            for merged in run[first + 1 : last]:
                segments[merged].type = mujoco.mjtGeom.mjGEOM_NONE


def corners(points: npt.NDArray[np.float64], tolerance: float) -> list[int]:
    """Return the indices of the points [N, 3] that a polyline needs to stay within ``tolerance``.

    Douglas and Peucker: keep the ends, and split at the farthest point while it is too far.
    """
    kept = [0, len(points) - 1]
    open_spans = [(0, len(points) - 1)]
    while open_spans:
        first, last = open_spans.pop()
        if last - first < 2:
            continue
        chord = points[last] - points[first]
        offset = points[first + 1 : last] - points[first]
        # Clipped to the span: a tendon that hangs below both its ends leaves the line nowhere.
        share = np.clip(offset @ chord / max(float(chord @ chord), 1e-24), 0.0, 1.0)
        distance = np.linalg.norm(offset - np.outer(share, chord), axis=1)
        farthest = int(distance.argmax())
        if distance[farthest] > tolerance:
            middle = first + 1 + farthest
            kept.append(middle)
            open_spans += [(first, middle), (middle, last)]
    return sorted(kept)
