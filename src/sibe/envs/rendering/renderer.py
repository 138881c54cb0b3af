"""MuJoCo frames for learning: small, fast, and with exact coverage instead of a mask by color.

Two kinds of picture. ``rgb()`` is the stock image. ``rgba()`` leaves out sky, floor and walls and
returns what remains, premultiplied, with the share of each pixel that it covers: MuJoCo clears its
buffer to transparent, so the multisampled alpha *is* the geometric coverage, at no extra cost.

Time in software rendering goes to triangles and the shadow map. Measured against stock at 84×84:
shadow maps of 512² or 192² instead of 4096², as few slices and stacks as the shapes allow, and
boxes for what is thinner than a pixel keep the picture within 0.5 of 255 (clean) and 3 (robot).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sibe.envs.rendering import gl
from sibe.envs.rendering.read_pixels import read_rgba
from sibe.envs.rendering.scene import draw_thin_as_boxes, has_glass, limb_width, make_opaque

Frame = npt.NDArray[np.uint8]

_SMALL = 128  # larger frames are for people: they get stock quality
_SPHERES = (2, 4)  # mjGEOM_SPHERE, mjGEOM_ELLIPSOID
_FLATS = (0, 1)  # mjGEOM_PLANE, mjGEOM_HFIELD
_HIDDEN_GROUP = 5


def background_geoms(model: Any, *, keep_floor: bool = False) -> list[int]:
    """Return the geoms that are arena, not robot or task object: static planes and height fields.

    This holds for every task of the suite: floors and walls are planes (terrain a height field)
    welded to the world, and nothing else is. ``keep_floor`` leaves those that face upwards.
    """
    geoms = []
    for geom in range(model.ngeom):
        static = model.body_weldid[model.geom_bodyid[geom]] == 0
        if static and model.geom_type[geom] in _FLATS:
            w, x, y, z = model.geom_quat[geom]
            faces_up = w * w - x * x - y * y + z * z > 0.9  # some walls lean back by 45°
            if not (keep_floor and faces_up):
                geoms.append(geom)
    return geoms


def _has_spheres(model: Any) -> bool:
    sites = (model.site_group < 3) & (model.site_rgba[:, 3] > 0)
    return bool(np.isin([*model.geom_type, *model.site_type[sites]], _SPHERES).any())


class Renderer:
    """Renders one model from one fixed camera.

    Args:
        model, data: MuJoCo's ``MjModel`` and ``MjData``.
        height, width: of the frames, in pixels.
        camera: index of a camera of the model; -1 for the free camera.
        hidden: geoms that ``rgba()`` leaves out, or None if only ``rgb()`` will be asked for.
    """

    def __init__(
        self, model: Any, data: Any, height: int, width: int, camera: int, hidden: list[int] | None
    ) -> None:
        self._gl: Any = None
        self._context: Any = None
        gl.load_suite()
        import mujoco

        self._mujoco = mujoco
        self._model, self._data = model, data
        self._height, self._width = height, width
        self._small = max(height, width) <= _SMALL
        self._hidden = None if hidden is None else np.asarray(hidden, dtype=int)
        self._scene = mujoco.MjvScene(model, maxgeom=2000)
        self._option, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = 0  # as stock dm_control has it
        self._camera = mujoco.MjvCamera()
        if camera >= 0:
            self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            self._camera.fixedcamid = camera
        else:
            mujoco.mjv_defaultFreeCamera(model, self._camera)
        # With the floor gone there is nothing left that mirrors.
        self._floor = hidden is None or len(hidden) < len(background_geoms(model))
        self._glass = hidden is not None and has_glass(model)
        if hidden is not None:
            for flag in ("SKYBOX", "HAZE", *(() if self._floor else ("REFLECTION",))):
                self._scene.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{flag}")] = 0
        self._rect = mujoco.MjrRect(0, 0, width, height)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the frames."""
        return self._height, self._width

    def rgb(self) -> Frame:
        """Return the stock image: uint8 [H, W, 3]."""
        pixels = np.empty((self._height, self._width, 3), np.uint8)
        with self._current() as call:
            call(self._draw)
            call(self._mujoco.mjr_readPixels, pixels, None, self._rect, self._context)
        return pixels[::-1]

    def rgba(self) -> Frame:
        """Return uint8 [H, W, 4]: all but the background, color times coverage, and coverage."""
        with self._current() as call:
            group = self._model.geom_group[self._hidden].copy()
            self._model.geom_group[self._hidden] = _HIDDEN_GROUP
            try:
                call(self._draw)
            finally:
                self._model.geom_group[self._hidden] = group
            pixels: Frame = call(self._read_rgba)
        return pixels[::-1]

    def refresh(self) -> None:
        """Upload what a task may change between episodes: the terrain."""
        if self._model.nhfield and self._context is not None:
            with self._current() as call:
                for field in range(self._model.nhfield):
                    call(self._mujoco.mjr_uploadHField, self._model, self._context, field)

    def close(self) -> None:
        """Give up what is held on the GL side; it is freed when its context is next current.

        Freed under another context (stock dm_control's, or after a fork) it would take that one's
        buffers with it. MuJoCo's own destructor does just that, so it must never come to it.
        """
        if self._context is not None:
            self._gl.given_up.append(self._context)
            self._context = None

    __del__ = close

    def _current(self) -> _Current:
        shared = gl.context()
        if self._gl is not shared:  # first use, another thread, or a forked child
            self.close()
            self._gl = shared
        return _Current(self, shared)

    def _build(self) -> None:
        """Create the GL side with our quality; the model's own settings stay as they are."""
        quality = self._quality()
        saved = [(part, name, getattr(part, name)) for part, name, _ in quality]
        for part, name, value in quality:
            setattr(part, name, value)
        try:
            self._context = self._mujoco.MjrContext(
                self._model, self._mujoco.mjtFontScale.mjFONTSCALE_100
            )
        except self._mujoco.FatalError as error:
            raise gl.broken(gl.select_backend(), error) from error
        finally:
            for part, name, value in saved:
                setattr(part, name, value)

    def _quality(self) -> list[tuple[Any, str, int]]:
        vis = self._model.vis
        size = [(vis.global_, "offwidth", self._width), (vis.global_, "offheight", self._height)]
        detail = self._detail() if self._small else {}
        return size + [(vis.quality, name, value) for name, value in detail.items()]

    def _detail(self) -> dict[str, int]:
        # Stacks run along a limb's straight side, where they add nothing; they are the shape of a
        # sphere. Slices go around a limb. Flat faces need not be cut into quads at all.
        spheres, model = _has_spheres(self._model), self._model
        if self._floor:
            detail = {"numslices": 20, "numstacks": 6 if spheres else 4, "numquads": 1}
            # Rough ground shades itself, which a small map gets wrong.
            return detail if model.nhfield else {**detail, "shadowsize": 512}
        # Light is computed at the vertices. With fewer slices it shines elsewhere, and a limb of
        # a pixel or two is all shine.
        if limb_width(self._mujoco, model, self._camera, self._height) < 2:
            slices, stacks = model.vis.quality.numslices, 8 if spheres else 4
        else:
            slices, stacks = (16, 10) if spheres else (21, 4)
        return {"numslices": slices, "numstacks": stacks, "numquads": 1, "shadowsize": 192}

    def _draw(self) -> None:
        mujoco = self._mujoco
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        mujoco.mjv_updateScene(
            self._model,
            self._data,
            self._option,
            self._perturb,
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        if self._small:
            draw_thin_as_boxes(self._scene, self._height)
        if self._glass:
            make_opaque(self._scene)
        mujoco.mjr_render(self._rect, self._scene, self._context)

    def _read_rgba(self) -> Frame:
        """Read color and alpha; ``mjr_readPixels`` knows only color."""
        return read_rgba(self._context, self._height, self._width)


class _Current:
    """``with`` it, the shared context is current and the renderer's GL side exists."""

    def __init__(self, renderer: Renderer, shared: Any) -> None:
        self._renderer, self._shared = renderer, shared
        self._manager = shared.make_current()

    def __enter__(self) -> Any:
        call = self._manager.__enter__().call
        # dm_control remembers which context it made current; other libraries may have changed it.
        call(self._shared._platform_make_current)
        while self._shared.given_up:
            call(self._shared.given_up.pop().free)
        if self._renderer._context is None:
            call(self._renderer._build)
        return call

    def __exit__(self, *error: Any) -> None:
        self._manager.__exit__(*error)
