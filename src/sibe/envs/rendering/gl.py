"""Pick the OpenGL backend before MuJoCo is imported, and lend one context to every renderer.

MuJoCo and dm_control read ``MUJOCO_GL`` once, at import; on a machine without a display dm_control
then settles for GLFW, which imports and fails later. A user's own choice is never overwritten.
All renderers of a thread share one context: switching contexts costs more than small frames do,
and freeing one of several EGL contexts by hand has been seen to break the others.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import importlib.metadata
import logging
import os
import sys
import threading
import warnings
from typing import Any

from sibe.errors import UserError

APT_LINE = "apt-get install -y libegl1 libgl1-mesa-dri libopengl0"
_LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
_PACKAGES = {"egl": APT_LINE, "osmesa": "apt-get install -y libosmesa6"}
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
_local = threading.local()


def _installed(backend: str) -> bool:
    try:
        ctypes.CDLL(_LIBRARIES[backend])
    except OSError:
        return False
    return True


def _import_before_mesa() -> None:
    """Import triton if PyTorch brought it, as PyPI's wheels for GPUs do.

    It has an LLVM of its own. PyTorch imports it with the first optimizer, and if Mesa, which draws
    with another LLVM, has been loaded by then, the process ends in a segmentation fault.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("triton")


def select_backend() -> str:
    """Choose and return the GL backend ("egl", "osmesa" or "glfw"); set ``MUJOCO_GL`` if unset."""
    _import_before_mesa()
    # Mesa's software rasteriser: at these sizes its threads cost more than they bring, and they
    # would fight the learner for cores.
    os.environ.setdefault("LP_NUM_THREADS", "0")
    chosen = os.environ.get("MUJOCO_GL", "").lower()
    # GLFW needs no display server on macOS.
    has_display = sys.platform == "darwin" or any(os.environ.get(name) for name in _DISPLAYS)
    if chosen in _LIBRARIES:
        if not _installed(chosen):
            raise UserError(
                f"MUJOCO_GL={chosen}, but {_LIBRARIES[chosen]} is not installed: "
                f"{_PACKAGES[chosen]}, or unset MUJOCO_GL"
            )
    elif chosen == "glfw":
        if not has_display:
            raise UserError(
                "MUJOCO_GL=glfw needs a display and there is none: set MUJOCO_GL=egl, or unset it"
            )
    elif chosen:
        raise UserError(f"MUJOCO_GL={chosen} is not a backend: use egl, osmesa or glfw")
    else:
        chosen = next((name for name in _LIBRARIES if _installed(name)), "glfw")
        if chosen == "glfw" and not has_display:
            raise UserError(f"no OpenGL backend is installed: {APT_LINE}")
    os.environ["MUJOCO_GL"] = chosen  # dm_control knows lower case only
    return chosen


def check_versions() -> None:
    """Refuse the pair of mujoco and dm_control that installs but cannot load a model."""
    mujoco = importlib.metadata.version("mujoco")
    if int(mujoco.split(".")[0]) >= 4:
        dm_control = importlib.metadata.version("dm_control")
        raise UserError(
            f"mujoco {mujoco} does not work with dm_control {dm_control}: "
            "pip uninstall -y mujoco mujoco-core mujoco-studio && pip install 'mujoco>=3.17,<4'"
        )


def load_suite() -> Any:
    """Import and return ``dm_control.suite`` with a working backend behind it."""
    backend = select_backend()
    check_versions()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # GLFW warns of what then fails; one line is enough
            from dm_control import suite
    except Exception as error:  # PyOpenGL raises whatever it stumbles over
        raise broken(backend, error) from error
    logging.getLogger("absl").addFilter(_for_dm_control)
    return suite


def _for_dm_control(record: logging.LogRecord) -> bool:
    """Leave out what only the authors of dm_control's models can fix."""
    return "settotalmass" not in record.getMessage()


def broken(backend: str, error: Exception) -> UserError:
    """Return what to tell the user when OpenGL is there and does not work."""
    reason = " ".join(str(error).split()) or type(error).__name__
    fix = _PACKAGES.get(backend, "export MUJOCO_GL=egl")
    return UserError(f"OpenGL does not start (MUJOCO_GL={backend}): {reason}; try {fix}")


def context() -> Any:
    """Return this thread's GL context (dm_control's class, so that both agree on what is current).

    A forked child gets its own: a context does not survive the fork.
    """
    if getattr(_local, "pid", None) != os.getpid():
        backend = select_backend()
        load_suite()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _local.context = _create(backend)
            _local.context.given_up = []  # what its renderers no longer need
        except Exception as error:  # the backends raise whatever their platform raises
            raise broken(backend, error) from error
        _local.pid = os.getpid()
        atexit.register(_leave, _local.context)
    return _local.context


def describe() -> str:
    """Return who draws: OpenGL's version and its renderer."""
    with context().make_current() as current:
        from OpenGL import GL

        names = (GL.GL_VERSION, GL.GL_RENDERER)
        return ", ".join(current.call(GL.glGetString, name).decode() for name in names)


def _leave(context: Any) -> None:
    """Leave a context to the end of the process: EGL refuses to free one from another thread.

    That this is registered keeps the context alive until then, too.
    """
    context._render_executor._terminated = True


def _create(backend: str) -> Any:
    """Create a context of our choice, even if dm_control was imported earlier and made another."""
    from dm_control._render import executor

    if backend == "egl":
        from dm_control._render.pyopengl.egl_renderer import EGLContext

        return EGLContext(64, 64)
    if backend == "osmesa":
        from dm_control._render.pyopengl.osmesa_renderer import OSMesaContext

        # On the calling thread: the thread of its own that dm_control would give it is gone at
        # exit before the context is.
        return OSMesaContext(64, 64, executor.PassthroughRenderExecutor)
    from dm_control._render.glfw_renderer import GLFWContext

    return GLFWContext(64, 64)
