"""A MuJoCo scene as the agent sees it: the robot, with a background painted behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sibe.envs.backgrounds.background import Background, compose
from sibe.envs.rendering.renderer import Frame, Renderer, background_geoms
from sibe.envs.sensors import Sensors
from sibe.kernels import layers


@dataclass(frozen=True)
class ViewConfig:
    """How a scene is shown."""

    background: Background | None = None
    """what is painted behind the robot; None leaves the picture as it is"""
    height: int = 84
    width: int = 84
    supersample: int = 1
    """draw this many times as large each way, then average the blocks"""
    keep_floor: bool = False
    """with a background, leave the floor"""


class View:
    """Looks at one simulation through one camera.

    Args:
        model, data: MuJoCo's ``MjModel`` and ``MjData``.
        camera: index of the camera; -1 for the free one.
        config: how it is shown.

    ``picture`` is the background behind the newest frame, before the robot was laid over it and
    before blocks were averaged; ``layer`` the robot of that frame alone, uint8 [H, W, 4] as
    ``compose`` takes it. Both are None without a background.
    """

    def __init__(self, model: Any, data: Any, camera: int, config: ViewConfig) -> None:
        hidden = None
        if config.background is not None:
            hidden = background_geoms(model, keep_floor=config.keep_floor)
        self._new_renderer = partial(Renderer, model, data, camera=camera, hidden=hidden)
        factor = config.supersample
        self.renderer = self._new_renderer(config.height * factor, config.width * factor)
        self._enlarged: Renderer | None = None
        self._supersample = config.supersample
        self._background = config.background
        self.picture: Frame | None = None
        self.layer: Frame | None = None

    def refresh(self) -> None:
        """Upload what a task may change between episodes."""
        for renderer in self._renderers():
            renderer.refresh()

    def close(self) -> None:
        """Free the renderers."""
        for renderer in self._renderers():
            renderer.close()

    def enlarged(self, height: int, width: int) -> Frame:
        """Render the present state again for people, uint8 [height, width, 3]."""
        if self._enlarged is None or self._enlarged.shape != (height, width):
            if self._enlarged is not None:
                self._enlarged.close()
            self._enlarged = self._new_renderer(height, width)
        if self._background is None:
            return np.ascontiguousarray(self._enlarged.rgb())
        return compose(self._enlarged.rgba(), self._background.shown(height, width))

    def _renderers(self) -> list[Renderer]:
        return [self.renderer] if self._enlarged is None else [self.renderer, self._enlarged]

    def frame(self, rng: np.random.Generator, behind: Frame | None = None) -> Frame:
        """Render the present state, uint8 [H, W, 3]; ``rng`` drives the background.

        ``behind`` is the picture that another camera has seen at this moment, for this one too.
        """
        if self._background is None:
            return average_blocks(np.ascontiguousarray(self.renderer.rgb()), self._supersample)
        self.picture = self._background.next(rng) if behind is None else behind
        self.layer = self.renderer.rgba()
        return lay_over(self.layer, self.picture, self._supersample)


def look(views: Sequence[View], sensors: Sensors, rng: np.random.Generator) -> dict[str, Frame]:
    """Return a frame of each view, by sensor; one picture is behind them all."""
    frames: dict[str, Frame] = {}
    for name, view in zip(sensors.views, views, strict=True):
        frames[name] = view.frame(rng, views[0].picture if frames else None)
    return frames


def lay_over(robot: Frame, picture: Frame, side: int) -> Frame:
    """Lay the robot over a picture as ``compose`` does, then average blocks of side × side."""
    if layers.available():
        return layers.lay_over(robot, picture, side)
    return average_blocks(compose(robot, picture), side)


def average_blocks(image: Frame, side: int) -> Frame:
    """Return the mean of each block of side × side pixels, rounded.

    uint8 [H·side, W·side, C] -> [H, W, C].
    """
    if side == 1:
        return image
    height, width, channels = image.shape
    blocks = image.reshape(height // side, side, width // side, side, channels)
    # Place by place within the blocks: NumPy's sum over two short axes takes five times as long.
    total = np.zeros(blocks[:, 0, :, 0].shape, np.uint16 if side <= 16 else np.uint32)
    for row, column in np.ndindex(side, side):
        total += blocks[:, row, :, column]
    means: Frame = ((total + side * side // 2) // (side * side)).astype(np.uint8)
    return means
