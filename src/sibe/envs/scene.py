"""What is changed in MuJoCo's list of things to draw, between its filling and the drawing."""

from __future__ import annotations

from typing import Any

import numpy as np

_SPHERE, _CAPSULE, _CYLINDER, _BOX = 2, 3, 5, 6  # mjtGeom
_ROUND = (_SPHERE, _CAPSULE, _CYLINDER)


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


def draw_thin_as_boxes(scene: Any, height: int) -> None:
    """Draw as a box what is round and thinner than a pixel, in frames of ``height`` pixels.

    A capsule is hundreds of triangles, and MuJoCo draws a slack string as thirty capsules: they
    would cost more than the robot, and nobody can see that they are round.
    """
    shapes = [geom for geom in scene.geoms[: scene.ngeom] if geom.type in _ROUND]
    if not shapes:
        return
    camera = scene.camera[0]
    distance = (np.array([geom.pos for geom in shapes]) - camera.pos) @ camera.forward
    view = (camera.frustum_top - camera.frustum_bottom) / camera.frustum_near
    pixel = view * distance / height
    thin = 2 * np.array([geom.size[0] for geom in shapes]) < pixel
    for index in thin.nonzero()[0]:
        geom = shapes[index]
        # Of the same cross-section; a sphere, of the same volume.
        if geom.type == _SPHERE:
            geom.size[:] *= (np.pi / 6) ** (1 / 3)
        else:
            geom.size[:2] *= np.sqrt(np.pi) / 2
        geom.type = _BOX
