"""The simulator's state as named numbers that a linear map can be asked for.

An angle is given by its sine and cosine, an orientation by its rotation matrix, because both are
continuous where the number itself jumps. What the camera follows (a walker's place along its
track) leaves no trace in a picture without a floor; ``visible_positions`` finds out by looking.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation

from sibe.envs.rendering.renderer import Renderer, background_geoms

_FREE, _BALL, _SLIDE, _HINGE = range(4)  # mjtJoint
_SIZE = 64  # of the frames that are compared, in pixels
_NUDGE = 0.1  # meters or radians
_SAME = 8  # of 255: an unseen nudge changes no pixel by more than 1, a seen one by 12 or more

Named = dict[str, float]


class SimulatorState(NamedTuple):
    """Where things are, how fast they move, and what the task itself would observe."""

    positions: Named
    """by joint: a slide's place, a hinge's sine and cosine; {} without MuJoCo"""
    velocities: Named
    """by degree of freedom; {} without MuJoCo"""
    task: Named
    """the task's own observation, flattened; {} if that is no vector"""


def simulator_state(env: Any) -> SimulatorState:
    """Return the present state of a ``DMCPixels`` or ``GymPixels`` (unwrapped)."""
    task = {
        f"{name} {index}": float(value)
        for name, values in env.task_observation.items()
        for index, value in enumerate(np.ravel(values))
    }
    if env.simulator is None:
        return SimulatorState({}, {}, task)
    model, data = env.simulator
    positions = joint_positions(model, data.qpos)
    velocities = {
        f"{name} {axis}" if count > 1 else name: float(data.qvel[start + axis])
        for name, start, count in _velocity_slots(model)
        for axis in range(count)
    }
    return SimulatorState(positions, velocities, task)


def joint_positions(model: Any, qpos: npt.NDArray[np.float64]) -> Named:
    """Return the numbers that stand for ``qpos`` [nq] of a MuJoCo model."""
    named: Named = {}
    for joint in range(model.njnt):
        name, start, kind = _name(model, joint), model.jnt_qposadr[joint], model.jnt_type[joint]
        if kind == _SLIDE:
            named[name] = float(qpos[start])
        elif kind == _HINGE:
            named[f"{name} sin"] = float(np.sin(qpos[start]))
            named[f"{name} cos"] = float(np.cos(qpos[start]))
        else:
            if kind == _FREE:
                named |= {f"{name} {axis}": float(qpos[start + i]) for i, axis in enumerate("xyz")}
                start += 3
            turn = Rotation.from_quat(qpos[start : start + 4], scalar_first=True).as_matrix()
            named |= {f"{name} r{i}{j}": float(turn[i, j]) for i in range(3) for j in range(3)}
    return named


def visible_positions(env: Any) -> set[str]:
    """Return the names of the positions that show in a picture of the robot alone.

    Each coordinate is nudged and the robot drawn again: in the present pose, and in the model's
    own, because a robot at the edge of the picture shows little. The simulator is left in a state
    that only a reset should follow: call it when an episode is over.
    """
    if env.simulator is None:
        return set()
    import mujoco

    model, data = env.simulator
    renderer = Renderer(model, data, _SIZE, _SIZE, env.camera, background_geoms(model))
    qpos = data.qpos.copy()

    def look(moved: npt.NDArray[np.float64]) -> npt.NDArray[np.int16]:
        data.qpos[:] = moved
        mujoco.mj_forward(model, data)
        return renderer.rgba().astype(np.int16)

    try:
        visible: set[str] = set()
        for pose in (model.qpos0, qpos):
            before, plain = look(pose), joint_positions(model, pose)
            for slot in range(model.nq):
                moved = pose.copy()
                moved[slot] += _NUDGE
                if np.abs(look(moved) - before).max() > _SAME:
                    named = joint_positions(model, moved)
                    visible |= {name for name, value in named.items() if value != plain[name]}
        look(qpos)
    finally:
        renderer.close()
    return visible


class RobotShare:
    """Measures how much of the picture is covered by what can move: is the robot in view?

    Fixed parts, such as the rail of a cart-pole, are not counted: they are always there.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._renderer: Renderer | None = None
        self._measured: tuple[Any, Any] = None, None  # model and data

    def __call__(self) -> float:
        """Return the share of the present picture, 0 to 1; NaN without MuJoCo."""
        if self._env.simulator is None:
            return float("nan")
        model, data = self._env.simulator
        if model is not self._measured[0] or data is not self._measured[1]:  # made anew at reset
            self.close()
            static = np.flatnonzero(model.body_weldid[model.geom_bodyid] == 0)
            self._renderer = Renderer(model, data, _SIZE, _SIZE, self._env.camera, static.tolist())
            self._measured = model, data
        assert self._renderer is not None
        return float(self._renderer.rgba()[..., 3].mean() / 255)

    def close(self) -> None:
        """Free the renderer."""
        if self._renderer is not None:
            self._renderer.close()


def _name(model: Any, joint: int) -> str:
    return model.joint(joint).name or f"joint {joint}"


def _velocity_slots(model: Any) -> list[tuple[str, int, int]]:
    """Return name, first index in qvel and number of degrees of freedom of each joint."""
    counts = {_FREE: 6, _BALL: 3, _SLIDE: 1, _HINGE: 1}
    return [
        (_name(model, joint), int(model.jnt_dofadr[joint]), counts[int(model.jnt_type[joint])])
        for joint in range(model.njnt)
    ]
