"""Proprioception: what a robot of the DeepMind Control suite feels of its own body.

Positions and velocities of the robot's joints, never those of an object, a pole, a ball or a
target. Where the robot is in the world is left out too, as in the suite's own observations: its
height is there, its place along the floor is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_FREE, _BALL, _SLIDE, _HINGE = range(4)  # mjtJoint
_DOFS = {_FREE: 6, _BALL: 3, _SLIDE: 1, _HINGE: 1}
_PLACE = ("rootx", "rooty")  # slides along the floor; a hinge of this name is a pitch

_ARM = (
    *("arm_root", "arm_shoulder", "arm_elbow", "arm_wrist"),
    *("thumb", "thumbtip", "finger", "fingertip"),
)
ALL = None
ROBOT_JOINTS: dict[str, tuple[str, ...] | None] = {
    "acrobot": ("shoulder", "elbow"),
    "ball_in_cup": ("cup_x", "cup_z"),
    "cartpole": ("slider",),
    "cheetah": ALL,
    "dog": ALL,
    "finger": ("proximal", "distal"),
    "fish": ALL,
    "hopper": ALL,
    "humanoid": ALL,
    "humanoid_CMU": ALL,
    "lqr": ALL,
    "manipulator": _ARM,
    "pendulum": ("hinge",),
    "point_mass": ("root_x", "root_y"),
    "quadruped": ALL,
    "reacher": ("shoulder", "wrist"),
    "stacker": _ARM,
    "swimmer": ALL,
    "walker": ALL,
}
"""By domain, the joints that are the robot's own; ALL but those of ``_OBJECTS``."""
_OBJECTS = ("ball_root",)


class Proprioception:
    """Reads the robot's joints: float32 ``[size]``, finite.

    A slide is its position, a hinge sine and cosine of its angle, an orientation its rotation
    matrix; then come the velocities of all degrees of freedom.

    Args:
        model: MuJoCo's ``MjModel`` of a suite task.
        domain: the task's.
    """

    def __init__(self, model: Any, domain: str) -> None:
        own = ROBOT_JOINTS[domain]
        plain: list[int] = []
        hinges: list[int] = []
        velocities: list[int] = []
        self._turns: list[int] = []
        for joint in range(model.njnt):
            name, kind = model.joint(joint).name, int(model.jnt_type[joint])
            if name in _OBJECTS or (own is not ALL and name not in own):
                continue
            start, dof = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
            if kind == _HINGE:
                hinges.append(start)
            elif kind == _SLIDE and name not in _PLACE:
                plain.append(start)
            elif kind == _FREE:
                plain.append(start + 2)  # the height
                self._turns.append(start + 3)
            elif kind == _BALL:
                self._turns.append(start)
            velocities += range(dof, dof + _DOFS[kind])
        self._plain, self._hinges, self._velocities = (
            np.array(slots, np.int64) for slots in (plain, hinges, velocities)
        )
        self.size = len(plain) + 2 * len(hinges) + 9 * len(self._turns) + len(velocities)

    def __call__(self, data: Any) -> npt.NDArray[np.float32]:
        """Return the reading of MuJoCo's ``MjData``."""
        qpos = data.qpos
        angles = qpos[self._hinges]
        turns = [_rotation(qpos[start : start + 4]) for start in self._turns]
        parts = (qpos[self._plain], np.sin(angles), np.cos(angles), *turns)
        return np.concatenate((*parts, data.qvel[self._velocities]), dtype=np.float32)


def _rotation(quaternion: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the rotation matrix of a quaternion, w first: ``[9]``."""
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            *(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
            *(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
            *(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
        ]
    )
