"""The README.md of an export: what the policy is, how well it does, and how to use it.

The block of metadata at its head is what model hubs read; the video is named as they expect it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from sibe.config.schema import EnvConfig, RunConfig
from sibe.envs.tasks import VIDEOS
from sibe.logs.markup import markdown

_HEAD = """\
---
library_name: sibe
pipeline_tag: reinforcement-learning
tags:
{tags}
model-index:
- name: {method}
  results:
  - task:
      type: reinforcement-learning
      name: reinforcement-learning
    dataset:
      name: {place}
      type: {setting}
    metrics:
    - type: mean_reward
      name: mean return
      value: {score}
      verified: false
---
"""


def model_card(
    config: RunConfig,
    env_step: int,
    returns: Sequence[float],
    seed: int,
    meta: dict[str, Any],
    *,
    video: bool,
    source: str = "path/to/this/folder",
) -> str:
    """Return the card as Markdown.

    Args:
        config: the run.
        env_step: how long it was trained, action repeat included.
        returns: of the evaluation episodes.
        seed: that of ``sibe eval`` which gives these episodes.
        meta: the run's meta.json, or {}.
        video: whether replay.mp4 is there.
        source: what to give ``sibe.load_policy``.
    """
    task, background = config.env.task, config.env.background
    spread = f"{np.mean(returns):.1f} ± {np.std(returns):.1f}"
    kinds = ("reinforcement-learning", "deep-reinforcement-learning", "sibe")
    tags = dict.fromkeys((*kinds, task, config.method))  # each once
    head = _HEAD.format(
        tags="\n".join(f"- {json.dumps(tag)}" for tag in tags),
        method=json.dumps(config.method),
        place=json.dumps(f"{task} ({background})"),
        setting=json.dumps(f"{task}-{background}"),
        score=json.dumps(spread.replace("±", "+/-")),
    )
    title = markdown(f"# {config.method} on {task} ({background})") + "\n"
    sections = (
        title,
        _score(spread, returns, seed, video),
        _use(source, config.env),
        _training(config, env_step, meta),
    )
    return head + "\n" + "\n".join(sections)


def _score(spread: str, returns: Sequence[float], seed: int, video: bool) -> str:
    each = ", ".join(f"{value:.1f}" for value in returns)
    film = "The first of them is [replay.mp4](replay.mp4).\n" if video else ""
    return (
        f"**Return {spread}** (mean ± standard deviation over {len(returns)} evaluation episodes "
        f"with the mean action).\n{film}\nEach episode: {each}.\n\nThe same episodes again: "
        f"`sibe eval . --episodes {len(returns)} --seed {seed}`\n"
    )


def _use(source: str, env: EnvConfig) -> str:
    takes = "uint8 [H, W, 3 * stack]"
    if not env.seen.bare:
        takes = f"a dict of {', '.join(env.seen.names)}"
    return f"""\
## Use

```python
import sibe

policy = sibe.load_policy("{source}")
policy.reset()  # when an episode begins
action = policy.act(obs)  # {takes} -> [-1, 1]^A, the mean action
```

    sibe eval {source} --video out.mp4

`model.safetensors` holds what acting needs and the method's networks; the critics and the
optimizers are not part of it, so training cannot be continued from here. `config.json` is the
whole configuration of the run.
"""


def _training(config: RunConfig, env_step: int, meta: dict[str, Any]) -> str:
    env, found = config.env, meta.get("versions")
    versions = found if isinstance(found, dict) else {}
    clips = "generated" if env.clips is None else "a clip bank of the author's own"
    rows = {
        "method": config.method,
        "task": env.task,
        "background": env.background + (f" ({clips})" if env.background in VIDEOS else ""),
        "trained for": f"{env_step} simulator steps (action repeat {env.action_repeat} included)",
        "seed": config.seed,
        "preset": config.preset,
        "observation": f"{env.stack} frames of {env.size}×{env.size} pixels"
        if env.seen.bare
        else f"{', '.join(env.seen.names)} ({env.stack} frames of {env.size}×{env.size} pixels)",
        "versions": ", ".join(f"{name} {value}" for name, value in versions.items() if value),
    }
    lines = [f"| {name} | {markdown(str(value))} |" for name, value in rows.items() if value != ""]
    return "## Training\n\n| | |\n|---|---|\n" + "\n".join(lines) + "\n"
