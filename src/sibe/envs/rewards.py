"""The reward of a control step, without dm_control's Python where that gives the same number.

dm_control computes rewards with arrays and looks bodies up by name, which takes half of a control
step of one pole on a cart. What is below does the same operations in the same order on scalars, so
that every reward is the same to the last bit; ``tests/envs/test_rewards.py`` compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_POLE = 2  # the body; 0 is the world and 1 the cart
_ZZ = 8  # of a body's rotation matrix: for the pole, the cosine of its angle
_TENTH = float(np.sqrt(-2 * np.log(0.1)))  # a Gaussian of this scale is 0.1 at 1


def reward_function(dm_env: Any) -> Callable[[], float]:
    """Return a function that gives the reward of the state that ``dm_env`` is in."""
    task, physics = dm_env.task, dm_env.physics
    from dm_control.suite import cartpole

    if type(task) is cartpole.Balance and not task._sparse and physics.model.nv == 2:
        return _one_pole(physics.data)
    return lambda: float(task.get_reward(physics) or 0.0)


def _one_pole(data: Any) -> Callable[[], float]:
    """Return the dense reward of balancing or swinging up one pole; ``data`` is dm_control's."""
    simulated: Any = None
    xmat = qpos = ctrl = qvel = np.empty(0)

    def reward() -> float:
        nonlocal simulated, xmat, qpos, ctrl, qvel
        if simulated is not data.ptr:  # a task may replace it
            simulated = data.ptr
            xmat, qpos = simulated.xmat, simulated.qpos
            ctrl, qvel = simulated.ctrl, simulated.qvel
        upright = (xmat.item(_POLE, _ZZ) + 1) / 2
        # Scalars are squared by pow() and arrays by a product, as dm_control has them here.
        centered = (1 + _gaussian((abs(qpos.item(0)) / 2 * _TENTH) ** 2)) / 2
        effort = abs(ctrl.item(0))
        small_control = (4 + (1 - effort * effort if effort < 1 else 0.0)) / 5
        speed = abs(qvel.item(1)) / 5 * _TENTH
        small_velocity = (1 + _gaussian(speed * speed)) / 2
        return upright * small_control * small_velocity * centered

    return reward


def _gaussian(square: float) -> float:
    return float(np.exp(-0.5 * square))  # NumPy's, which is not math's to the last bit
