"""Where the time of training goes, part by part, measured in the code as it is.

At every moment exactly one part is running, so the parts add up to the whole. Methods are wrapped
on the objects at hand and networks and optimizers through PyTorch's own hooks; the code that is
measured knows nothing of it. A part that is entered from elsewhere than it belongs (the encoder
while acting, the policy while evaluating) counts for where it was called from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

LOOP, UPDATE = "loop and logs", "heads"
ENCODE, BACKWARD, OPTIMIZER = "encoder forward", "encoder backward", "optimizer"
ACTOR, TARGETS = "actor", "EMA"
EVALUATION, CHECKPOINT = "evaluation", "checkpoint"
UPDATE_PARTS = (ENCODE, BACKWARD, UPDATE, ACTOR, OPTIMIZER, TARGETS)
OTHER_PARTS = ("sampling", "act", "environment", LOOP, EVALUATION, CHECKPOINT)


class Stopwatch:
    """Seconds by part."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.clear(LOOP)

    def clear(self, part: str) -> None:
        """Start from zero in ``part``."""
        self.seconds: dict[str, float] = {}
        self.part, self._since = part, self._clock()

    def switch(self, part: str) -> str:
        """Let ``part`` run from now on; return the one that ran until now."""
        now, before = self._clock(), self.part
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self.part, self._since = part, now
        return before

    def wrap(self, owner: Any, name: str, part: str, within: str) -> None:
        """Count calls of ``owner.name`` as ``part`` when they are made while ``within`` runs."""
        method = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.part != within:
                return method(*args, **kwargs)
            self.switch(part)
            try:
                return method(*args, **kwargs)
            finally:
                self.switch(within)

        setattr(owner, name, timed)


def watch_agent(agent: Any, watch: Stopwatch) -> None:
    """Split ``agent.update`` of a SAC into its parts."""
    watch.wrap(agent, "update", UPDATE, LOOP)
    watch.wrap(agent, "_update_actor", ACTOR, UPDATE)
    watch.wrap(agent, "_update_targets", TARGETS, UPDATE)
    for name in ("encoder", "target_encoder"):
        _watch_encoder(agent.networks()[name], watch)
    for optimizer in (agent.optimizer, agent.actor_optimizer, agent.temperature_optimizer):
        _watch_optimizer(optimizer, watch)


def watch_loop(loop: Any, watch: Stopwatch) -> None:
    """Split agent steps of ``loop`` (its collector, agent and replay) into their parts."""
    watch_agent(loop.agent, watch)
    watch.wrap(loop.collector.policy, "act", "act", LOOP)
    watch.wrap(loop.replay, "sample", "sampling", LOOP)
    watch.wrap(loop.collector.env, "step", "environment", LOOP)
    watch.wrap(loop.collector.env, "reset", "environment", LOOP)


def _watch_encoder(encoder: nn.Module, watch: Stopwatch) -> None:
    def enter(*_: object) -> None:
        if watch.part == UPDATE:
            watch.switch(ENCODE)

    def leave(_module: nn.Module, _inputs: object, c: Tensor) -> None:
        if watch.part == ENCODE:
            watch.switch(UPDATE)
            if c.requires_grad:  # with its gradient the convolutions' backward pass begins
                c.register_hook(gradient_arrived)

    def gradient_arrived(_: Tensor) -> None:
        watch.switch(BACKWARD)

    encoder.register_forward_pre_hook(enter)
    encoder.register_forward_hook(leave)


def _watch_optimizer(optimizer: Any, watch: Stopwatch) -> None:
    came_from = [UPDATE]

    def enter(*_: object) -> None:
        before = watch.switch(OPTIMIZER)
        # The step that follows the backward pass through the encoder ends it.
        came_from[0] = UPDATE if before == BACKWARD else before

    def leave(*_: object) -> None:
        watch.switch(came_from[0])

    optimizer.register_step_pre_hook(enter)
    optimizer.register_step_post_hook(leave)
