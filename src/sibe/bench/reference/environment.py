"""A pixel task as the reference draws it: dm_control renders, a segmentation image is the mask.

One stock render for the picture, a second one for the mask, NumPy for the rest; frames are moved to
CHW and stacked by concatenation. Mesa's threads are left as they come.
"""

from __future__ import annotations

import os
from collections import deque

import numpy as np
from numpy.typing import NDArray

from sibe.config.schema import EnvConfig

Bytes = NDArray[np.uint8]


class StockPixels:
    """The task, size, stack, action repeat and background of ``config``."""

    def __init__(self, config: EnvConfig, rng: np.random.Generator) -> None:
        from sibe.envs.backgrounds.background import VideoLoop
        from sibe.envs.rendering import gl
        from sibe.envs.rendering.renderer import background_geoms
        from sibe.envs.tasks import task_spec

        gl.select_backend()
        os.environ.pop("LP_NUM_THREADS", None)  # ours to set, not stock's
        from dm_control import suite

        spec = task_spec(config.task)
        self._config, self._rng, self._camera = config, rng, spec.camera
        self._env = suite.load(spec.domain, spec.task, task_kwargs={"random": 0})
        self._arena = background_geoms(self._env.physics.model.ptr)
        self._video: VideoLoop | None = None
        if config.background == "video":
            self._video = VideoLoop(None, "train", config.size, config.size)
        self._frames: deque[Bytes] = deque(maxlen=config.stack)
        self.action_dim: int = self._env.action_spec().shape[0]

    def reset(self) -> Bytes:
        """Begin an episode; return its first state uint8 ``[C·stack, H, W]``."""
        self._env.reset()
        frame = self._render()
        self._frames.extend([frame] * self._config.stack)
        return np.concatenate(self._frames, axis=0)

    def step(self, action: NDArray[np.float32]) -> tuple[Bytes, float, bool]:
        """Return the next state, the summed reward and whether the episode is over."""
        reward = 0.0
        for _ in range(self._config.action_repeat):
            now = self._env.step(action)
            reward += now.reward or 0.0
            if now.last():
                break
        self._frames.append(self._render())
        return np.concatenate(self._frames, axis=0), reward, now.last()

    def _render(self) -> Bytes:
        size = self._config.size
        render = self._env.physics.render
        frame: Bytes = render(size, size, camera_id=self._camera)
        if self._config.background != "clean":
            drawn = render(size, size, camera_id=self._camera, segmentation=True)[..., 0]
            behind = (drawn < 0) | np.isin(drawn, self._arena)
            frame = np.where(behind[..., None], self._picture(), frame)
        return frame.transpose(2, 0, 1).copy()

    def _picture(self) -> Bytes:
        if self._video is not None:
            return self._video.next(self._rng)
        size = self._config.size
        noise = self._rng.normal(127.5, 64.0, (size, size, 3))
        return np.clip(np.rint(noise), 0, 255).astype(np.uint8)
