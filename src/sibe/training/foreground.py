"""The lessons in which an agent learns, from its replay, which pixels show the robot."""

from __future__ import annotations

from sibe.agents.protocol import Agent
from sibe.replay.replay import Replay

_WHOLE = "the robot was not told from its background so far: the agent sees whole frames"


def take_due_lesson(agent: Agent, replay: Replay, env_step: int) -> str | None:
    """Let the agent take a lesson, if one is due; return what there is to say about it."""
    foreground = agent.foreground
    if foreground is None or not foreground.due(agent.updates):
        return None
    whole = not foreground.ready
    if foreground.learn(replay.stored_frames()):
        replay.look_again()
        return f"from env_step {env_step} on, the agent sees the robot alone" if whole else None
    return _WHOLE if whole else None
