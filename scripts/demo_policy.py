"""Make the policy that `sibe demo` plays from a finished run of SIBE.

.venv/bin/python scripts/demo_policy.py runs/cartpole_swingup-noise/sibe/seed1

The folder is an export like any other, but for its tensors of 16 bits: half the bytes, for a wheel
that everyone downloads.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sibe.catalogue.run_config import to_json
from sibe.logs.csv_log import read_csv
from sibe.policy.export import CARD
from sibe.policy.load import load_policy
from sibe.policy.trained_policy import TrainedPolicy
from sibe.policy.weights import WEIGHTS, write_weights
from sibe.storage.atomic import write_atomic
from sibe.storage.run_files import CONFIG_JSON, RunFiles
from sibe.training.evaluation import evaluate, make_eval_envs, numbered_seeds

OUT = Path(__file__).parents[1] / "src" / "sibe" / "watch" / "data" / "policy"
BACKGROUNDS = ("noise", "video", "clean")
EPISODES = 10


def returns_of(policy: TrainedPolicy, background: str) -> list[float]:
    """Return what `sibe eval OUT --background …` prints."""
    envs = make_eval_envs(replace(policy.config.env, background=background), EPISODES)
    try:
        played = evaluate(policy.agent.policy(), envs, numbered_seeds(0, EPISODES))
    finally:
        for env in envs:
            env.close()
    return [round(episode.episode_return, 1) for episode in played]


def command_of(config: Any) -> str:
    """Return the command that trains such a policy."""
    env = config.env
    what = f"--task {env.task} --background {env.background} --method {config.method}"
    return f"sibe train --preset {config.preset} {what} --seed {config.seed}"


def card(about: dict[str, Any]) -> str:
    """Return the README of the folder."""
    rows = [
        f"| {name} | {np.mean(values):.1f} ± {np.std(values):.1f} |"
        for name, values in about["returns"].items()
    ]
    table = "\n".join(["| background | return, 10 episodes |", "|---|---|", *rows])
    versions, revision = about["versions"], about["revision"][:10]
    return f"""\
# The policy of `sibe demo`

Trained by `{about["command"]}`
at commit {revision} (sibe {versions["sibe"]}), for {about["env_steps"]} simulator steps, with
{about["background"]} behind the robot and nothing else.
Return at its last evaluation: {about["last_evaluation"]}.

{table}

Mean ± standard deviation; the same episodes again: `sibe eval FOLDER --background clean`. An export
like any other (`sibe.load_policy` takes this folder), made by `scripts/demo_policy.py`; its tensors
have 16 bits, which halves the file. All numbers: provenance.json.
"""


def main(run: Path) -> None:
    """Write the folder."""
    files = RunFiles(run)
    policy, meta = load_policy(run, device="cpu"), files.read_meta()
    networks = {name: net.half() for name, net in policy.agent.policy_networks().items()}
    OUT.mkdir(parents=True, exist_ok=True)
    write_weights(OUT / WEIGHTS, networks, policy.env_step, policy.agent.action_dim)
    config = json.dumps(to_json(policy.config), indent=1) + "\n"
    write_atomic(OUT / CONFIG_JSON, config.encode())
    written = load_policy(OUT, device="cpu")
    about = {
        "command": command_of(policy.config),
        "revision": meta["git"]["revision"],
        "versions": meta["versions"],
        "env_steps": policy.env_step,
        "background": policy.config.env.background,
        "last_evaluation": round(float(read_csv(files.eval_csv)["episode_reward"][-1]), 1),
        "returns": {name: returns_of(written, name) for name in BACKGROUNDS},
    }
    write_atomic(OUT / "provenance.json", (json.dumps(about, indent=1) + "\n").encode())
    write_atomic(OUT / CARD, card(about).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
