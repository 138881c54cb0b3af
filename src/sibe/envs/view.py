"""A MuJoCo scene as the agent sees it: the robot, with a background painted behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from sibe.envs.background import Background, compose
from sibe.envs.renderer import Frame, Renderer, background_geoms


class View:
    """Looks at one simulation through one camera.

    Args:
        model, data: MuJoCo's ``MjModel`` and ``MjData``.
        height, width: of the frames.
        camera: index of the camera; -1 for the free one.
        background: what is painted behind the robot; None leaves the picture as it is.
        keep_floor: with a background, leave the floor.

    ``picture`` is the background behind the newest frame, before the robot was laid over it;
    ``layer`` the robot of that frame alone, uint8 [H, W, 4] as ``compose`` takes it. Both are None
    without a background.
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        height: int,
        width: int,
        camera: int,
        background: Background | None,
        *,
        keep_floor: bool,
    ) -> None:
        hidden = None if background is None else background_geoms(model, keep_floor=keep_floor)
        self.renderer = Renderer(model, data, height, width, camera, hidden)
        self._background = background
        self.picture: Frame | None = None
        self.layer: Frame | None = None

    def frame(self, rng: np.random.Generator) -> Frame:
        """Render the present state, uint8 [H, W, 3]; ``rng`` drives the background."""
        if self._background is None:
            return np.ascontiguousarray(self.renderer.rgb())
        self.picture = self._background.next(rng)
        self.layer = self.renderer.rgba()
        return compose(self.layer, self.picture)
