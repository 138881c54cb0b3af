"""A MuJoCo scene as the agent sees it: the robot, with a background painted behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from sibe.envs.backgrounds.background import Background, compose
from sibe.envs.rendering.renderer import Frame, Renderer, background_geoms


class View:
    """Looks at one simulation through one camera.

    Args:
        model, data: MuJoCo's ``MjModel`` and ``MjData``.
        height, width: of the frames.
        camera: index of the camera; -1 for the free one.
        background: what is painted behind the robot; None leaves the picture as it is.
        keep_floor: with a background, leave the floor.
        supersample: draw this many times as large each way, then average the blocks.

    ``picture`` is the background behind the newest frame, before the robot was laid over it and
    before blocks were averaged;
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
        supersample: int = 1,
    ) -> None:
        hidden = None if background is None else background_geoms(model, keep_floor=keep_floor)
        large = height * supersample, width * supersample
        self.renderer = Renderer(model, data, *large, camera, hidden)
        self._supersample = supersample
        self._background = background
        self.picture: Frame | None = None
        self.layer: Frame | None = None

    def frame(self, rng: np.random.Generator) -> Frame:
        """Render the present state, uint8 [H, W, 3]; ``rng`` drives the background."""
        if self._background is None:
            return average_blocks(np.ascontiguousarray(self.renderer.rgb()), self._supersample)
        self.picture = self._background.next(rng)
        self.layer = self.renderer.rgba()
        return average_blocks(compose(self.layer, self.picture), self._supersample)


def average_blocks(image: Frame, side: int) -> Frame:
    """Return the mean of each block of side × side pixels, rounded.

    uint8 [H·side, W·side, C] -> [H, W, C].
    """
    if side == 1:
        return image
    height, width, channels = image.shape
    blocks = image.reshape(height // side, side, width // side, side, channels)
    total = blocks.sum(axis=(1, 3), dtype=np.uint32)
    means: Frame = ((total + side * side // 2) // (side * side)).astype(np.uint8)
    return means
