"""Control steps of a dm_control task, without dm_control's Python where that changes nothing.

For most tasks of the suite, what ``dm_env.step`` does around the simulator is to copy the controls
once more and to look for warnings; both are done here once for all control steps of an action. The
simulator is called as dm_control calls it, so that states and rewards are the same to the last bit;
``tests/envs/test_control_steps.py`` compares. A task with hooks of its own is stepped as it wants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sibe.envs.rewards import reward_function


class Stepped(NamedTuple):
    """What came of some control steps with one action."""

    reward: float
    """their sum"""
    newest: float
    """the reward of the last one"""
    steps: int
    discount: float | None
    """the task's last discount if it has ended, else None"""


class ControlSteps:
    """Steps the task of ``dm_env``."""

    def __init__(self, dm_env: Any) -> None:
        self._task, self._physics = dm_env.task, dm_env.physics
        self._reward = reward_function(dm_env)
        self._simulator_steps = round(dm_env.control_timestep() / self._physics.timestep())
        self._plain = _has_no_hooks(self._task, self._physics)

    def __call__(self, control: npt.NDArray[np.float64], most: int) -> Stepped:
        """Repeat an action ``most`` times, or until the task ends."""
        if not self._plain or self._task.visualize_reward:
            return self._by_dm_control(control, most)
        physics = self._physics
        advance = self._advance()
        reward = newest = 0.0
        # Raises what dm_control raises after the first control step that gives a warning.
        with physics.check_invalid_state():
            physics.data.ptr.ctrl[:] = control
            for _ in range(most):
                advance()
                newest = self._reward()
                reward += newest
        return Stepped(reward, newest, most, None)

    def _advance(self) -> Callable[[], None]:
        """Return what ``Physics.step`` does; it is made anew: a task may replace its model."""
        import mujoco

        model, data = self._physics.model.ptr, self._physics.data.ptr
        number, rk4 = self._simulator_steps, mujoco.mjtIntegrator.mjINT_RK4

        if model.opt.integrator == rk4:

            def advance() -> None:
                mujoco.mj_step(model, data, number)
                mujoco.mj_step1(model, data)

        else:

            def advance() -> None:
                mujoco.mj_step2(model, data)
                if number > 1:
                    mujoco.mj_step(model, data, number - 1)
                mujoco.mj_step1(model, data)

        return advance

    def _by_dm_control(self, control: npt.NDArray[np.float64], most: int) -> Stepped:
        """Do what ``dm_env.step`` does but for the observation, which is not used."""
        reward, newest, steps, discount = 0.0, 0.0, 0, None
        while steps < most and discount is None:
            self._task.before_step(control, self._physics)
            self._physics.step(self._simulator_steps)
            self._task.after_step(self._physics)
            newest = self._reward()
            reward += newest
            steps += 1
            discount = self._task.get_termination(self._physics)
        return Stepped(reward, newest, steps, discount)


def _has_no_hooks(task: Any, physics: Any) -> bool:
    """Whether the task and its physics are stepped as the suite's base classes are."""
    from dm_control.mujoco import Physics
    from dm_control.rl.control import Task as AnyTask
    from dm_control.suite.base import Task

    mine, of_physics = type(task), type(physics)
    return (
        isinstance(task, Task)
        and mine.before_step is Task.before_step
        and mine.after_step is Task.after_step
        and mine.visualize_reward is Task.visualize_reward
        and mine.get_termination is AnyTask.get_termination
        and of_physics.step is Physics.step
        and of_physics.set_control is Physics.set_control
        and physics.legacy_step
    )
