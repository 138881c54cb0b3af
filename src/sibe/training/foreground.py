"""When an agent trains its foreground network, and what the run says about it."""

from __future__ import annotations

from sibe.agents.protocol import Agent
from sibe.replay.replay import Replay

_WHOLE = (
    "no foreground mask yet (too few backgrounds recurred, or training was not accepted): "
    "the agent sees whole frames"
)


def train_foreground_if_due(agent: Agent, replay: Replay, env_step: int) -> str | None:
    """Train the foreground network if a round is due; return what to print about it."""
    foreground = agent.foreground
    if foreground is None or not foreground.due(agent.updates):
        return None
    whole = not foreground.ready
    if foreground.learn(replay.stored_frames()):
        replay.look_again()
        return (
            f"from env_step {env_step} on, the background is masked: the agent sees only the robot"
            if whole
            else None
        )
    return _WHOLE if whole else None
