"""One episode as the page plays it: the robot large, what is behind it, what the policy sees.

The policy acts in its own environment. A second one, of larger pictures and shorter agent steps,
is given the same seed and the same actions: one physics, drawn for people, in between decisions
too. The browser lays the robot over the very picture that was behind it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from sibe.agents.sac.agent import SAC
from sibe.analysis.page.template import to_base64
from sibe.envs.dmc import TIME_LIMIT, DMCPixels
from sibe.envs.sensors import PIXELS, Observation, each
from sibe.envs.tasks import check_background
from sibe.methods.base import Latents
from sibe.policy.trained_policy import TrainedPolicy
from sibe.training.environment import make_configured_env

LARGE = 336
"""Pixels of the large picture's sides."""
PICTURES = 2
"""Large pictures per agent step."""

Frame = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Episode:
    """An episode of T agent steps; pictures are data URLs."""

    seconds: float
    """of one agent step"""
    reward: list[float] = field(default_factory=list)
    """[T]"""
    bonus: list[float] = field(default_factory=list)
    """[T]"""
    robot: list[str] = field(default_factory=list)
    """[PICTURES·T + 1] transparent where there is no robot, unless nothing is painted behind it"""
    behind: list[str] = field(default_factory=list)
    """[T + 1] what was painted behind the robot; [] if nothing"""
    seen: list[str] = field(default_factory=list)
    """[T + 1] the newest frame of what the policy saw, pixel for pixel"""


def play(
    policy: TrainedPolicy, background: str, seed: int, progress: Callable[[float], None]
) -> Episode:
    """Play one episode of a suite task with the mean action.

    Args:
        policy: an agent of SAC.
        background: what is behind the robot.
        seed: of the environment.
        progress: is told the part of the episode that is done, 0 to 1.
    """
    own = policy.config.env
    behind = check_background(background) if own.seen.pixels else "clean"  # it sees no background
    config = replace(own, background=behind)
    large = replace(
        config,
        sensors=(PIXELS,),
        cameras=own.cameras[:1],
        size=LARGE,
        supersample=1,
        stack=1,
        action_repeat=config.action_repeat // PICTURES,
    )
    envs = [make_configured_env(one, split="eval") for one in (config, large)]
    try:
        return _play(policy, envs[0], envs[1], seed, progress)
    finally:
        for env in envs:
            env.close()


def _play(
    policy: TrainedPolicy, env: Any, large: Any, seed: int, progress: Callable[[float], None]
) -> Episode:
    sim, shown = cast(DMCPixels, env.unwrapped), cast(DMCPixels, large.unwrapped)
    episode = Episode(sim.action_repeat * sim.dm_env.control_timestep())
    state, _ = env.reset(seed=seed)
    large.reset(seed=seed)
    policy.reset()
    states, actions = [state], []
    _draw(episode, sim, shown)
    done = False
    while not done:
        actions.append(policy.act(state))
        state, reward, terminated, truncated, _ = env.step(actions[-1])
        done = terminated or truncated
        states.append(state)
        episode.reward.append(float(reward))
        for last in range(PICTURES):
            large.step(actions[-1])
            if last < PICTURES - 1:
                episode.robot.append(_robot(shown))
        _draw(episode, sim, shown)
        progress(min(1.0, len(actions) * sim.action_repeat / TIME_LIMIT))
    agent = cast(SAC, policy.agent)
    episode.bonus.extend(episode_bonus(agent, states, actions, episode.reward))
    return episode


@torch.no_grad()
def episode_bonus(
    agent: SAC,
    states: Sequence[Observation],
    actions: Sequence[npt.NDArray[np.float32]],
    rewards: Sequence[float],
) -> list[float]:
    """Return the bonus of each of T steps; what it is told apart from are the T - 1 others.

    In training that is the rest of a minibatch, about as many, and s_{t+1} goes through a slowly
    moving copy of the encoder, which an export does not have: here the encoder encodes both.
    """
    encoded = agent.embed(each(lambda *parts: np.stack(parts), *states))["c"]
    action = torch.from_numpy(np.stack(actions)).to(agent.device)
    latents = Latents(
        encoded[:-1, None],
        encoded[1:, None],
        action[:, None],
        torch.tensor(rewards, device=agent.device)[:, None],
    )
    generator = torch.Generator(agent.device).manual_seed(0)
    bonus: list[float] = agent.method(latents, generator).bonus[:, 0].tolist()
    return bonus


def _draw(episode: Episode, sim: DMCPixels, shown: DMCPixels) -> None:
    """Append the present state."""
    episode.robot.append(_robot(shown))
    episode.seen.append(_url(cast(Frame, sim.render()), "png"))
    assert sim.view is not None
    if sim.view.picture is not None:
        # Full color resolution: noise is color.
        picture = _url(sim.view.picture, "jpeg", quality=80, subsampling=0)
        episode.behind.append(picture)


def _robot(shown: DMCPixels) -> str:
    assert shown.view is not None
    layer = shown.view.layer
    if layer is None:  # nothing is painted behind it: the picture is whole
        return _url(cast(Frame, shown.render()), "jpeg", quality=72)
    return _url(straight_alpha(layer), "png")


def straight_alpha(layer: Frame) -> Frame:
    """Return color times coverage, and coverage, as color and coverage: uint8 [H, W, 4]."""
    coverage = layer[..., 3:].astype(np.uint16)
    color = (layer[..., :3] * np.uint16(255) + coverage // 2) // np.maximum(coverage, 1)
    return np.concatenate([np.minimum(color, 255).astype(np.uint8), layer[..., 3:]], axis=-1)


def _url(image: Frame, kind: str, **options: Any) -> str:
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **options)
    return f"data:image/{kind};base64,{to_base64(file.getvalue())}"
