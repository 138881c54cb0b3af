"""Several runs that are shown the same observations: loaded, named, and fit to be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sibe.catalogue.build import build_agent
from sibe.errors import UserError
from sibe.policy.load import load_policy
from sibe.policy.trained_policy import TrainedPolicy
from sibe.training.seeding import torch_stream

_SHARED = (
    *("task", "size", "supersample", "action_repeat", "camera", "cameras", "sensors"),
    "keep_floor",
)


def load_runs(
    paths: Sequence[Path], *, device: str, allow_import: bool = False
) -> dict[str, TrainedPolicy]:
    """Return the policies of runs or exports by a label each, in order.

    Raises:
        UserError: if one differs from the first in what an observation is, or is given twice.
    """
    policies = [load_policy(path, device=device, allow_import=allow_import) for path in paths]
    first = policies[0].config.env
    for path, policy in zip(paths, policies, strict=True):
        for name in _SHARED:
            here, there = getattr(first, name), getattr(policy.config.env, name)
            if here != there:
                raise UserError(
                    f"{path} cannot be compared with {paths[0]}: its {name} is {there}, not {here}"
                )
    # Runs that were trained in several settings say in which.
    several = len({policy.config.env.background for policy in policies}) > 1
    labels = [
        f"{policy.config.method}, seed {policy.config.seed}"
        + (f", {policy.config.env.background}" if several else "")
        for policy in policies
    ]
    count = Counter(labels)
    unique = [
        label if count[label] == 1 else f"{label} ({path})"
        for label, path in zip(labels, paths, strict=True)
    ]
    if len(set(unique)) < len(unique):
        raise UserError("--compare names a run twice: name each once")
    return dict(zip(unique, policies, strict=True))


def untrained_agent(policy: TrainedPolicy) -> Any:
    """Return the policy's agent as it was before training: the same networks, first weights."""
    agent, config = policy.agent, policy.config
    stream = torch_stream(config.seed, "agent")
    return build_agent(config, agent.action_dim, stream, agent.device, agent.state_size)
