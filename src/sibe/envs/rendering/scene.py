"""What is changed in MuJoCo's list of things to draw, between its filling and the drawing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_SPHERE, _CAPSULE, _CYLINDER, _BOX = 2, 3, 5, 6  # mjtGeom
_ROUND = (_SPHERE, _CAPSULE, _CYLINDER)
_GEOM = 5  # mjtObj


def has_glass(model: Any) -> bool:
    """Tell whether anything in the model is translucent."""
    colors = (model.geom_rgba, model.site_rgba, model.mat_rgba, model.tendon_rgba)
    return any(bool(((rgba[:, 3] > 0) & (rgba[:, 3] < 1)).any()) for rgba in colors)


def make_opaque(scene: Any) -> None:
    """Draw translucent things opaque, so that what is painted behind the robot stays behind it.

    MuJoCo blends alpha like a color: glass of alpha a leaves a coverage of a² on an empty pixel,
    and makes a hole of a − a² in what it covers.
    """
    for geom in scene.geoms[: scene.ngeom]:
        if 0 < geom.rgba[3] < 1:
            geom.rgba[3] = 1


def draw_thin_as_boxes(scene: Any, height: int) -> None:
    """Draw as boxes the strings and marks thinner than a pixel, in frames of ``height`` pixels.

    A capsule is hundreds of triangles, and MuJoCo draws a slack string as thirty capsules: they
    would cost more than the robot, and nobody can see that they are round.
    """
    # A body, however thin, keeps its shading.
    thin = [geom for geom in _round_shapes(scene) if geom.objtype != _GEOM]
    for index in np.flatnonzero(_widths(thin, scene, height) < 1) if thin else ():
        geom = thin[index]
        # Of the same cross-section; a sphere, of the same volume.
        if geom.type == _SPHERE:
            geom.size[:] *= (np.pi / 6) ** (1 / 3)
        else:
            geom.size[:2] *= np.sqrt(np.pi) / 2
        geom.type = _BOX


def limb_width(mujoco: Any, model: Any, camera: Any, height: int) -> float:
    """Return the usual width, in pixels, of what is round: the median, in the reference pose.

    The pose is the model's own, so that the answer does not depend on when it is asked for.
    """
    data, scene = mujoco.MjData(model), mujoco.MjvScene(model, maxgeom=2000)
    mujoco.mj_forward(model, data)
    everything, option, perturb = (
        mujoco.mjtCatBit.mjCAT_ALL,
        mujoco.MjvOption(),
        mujoco.MjvPerturb(),
    )
    mujoco.mjv_updateScene(model, data, option, perturb, camera, everything, scene)
    width = _widths(_round_shapes(scene), scene, height)
    return float(np.median(width[width >= 1])) if (width >= 1).any() else 0.0


def _round_shapes(scene: Any) -> list[Any]:
    return [geom for geom in scene.geoms[: scene.ngeom] if geom.type in _ROUND]


def _widths(shapes: list[Any], scene: Any, height: int) -> npt.NDArray[np.float64]:
    """Return the widths of round shapes in pixels: [N]."""
    camera = scene.camera[0]
    center = np.array([geom.pos for geom in shapes], np.float64).reshape(-1, 3)
    distance = (center - camera.pos) @ camera.forward
    view = (camera.frustum_top - camera.frustum_bottom) / camera.frustum_near
    diameter = 2 * np.array([geom.size[0] for geom in shapes], np.float64)
    width: npt.NDArray[np.float64] = diameter * height / (view * distance)
    return width
