"""A trained policy as a folder to give away: weights, config, model card, video.

``model.safetensors`` holds what acting and embedding need and nothing else (no critics, no
optimizers), in a format that cannot run code; ``config.json`` is the run's own, whole.
``sibe.load_policy`` and every verb that takes a run directory take such a folder as well.
"""

from __future__ import annotations

import json
from pathlib import Path

from sibe.catalogue.run_config import to_json
from sibe.errors import UserError
from sibe.logs.video import write_mp4
from sibe.policy.load import load_policy
from sibe.policy.model_card import model_card
from sibe.policy.trained_policy import TrainedPolicy
from sibe.policy.weights import WEIGHTS, write_weights
from sibe.storage.atomic import write_atomic
from sibe.storage.json_file import digest
from sibe.storage.run_files import CONFIG_JSON, RunFiles
from sibe.storage.temporary_folder import publish_folder, replacing_folder
from sibe.training.evaluation import (
    MOST_ENVS,
    Frame,
    evaluate,
    frame_rate,
    make_eval_envs,
    numbered_seeds,
)

CARD, VIDEO = "README.md", "replay.mp4"


def check_out(out: Path, overwrite: bool) -> None:
    """Refuse to write over anything but nothing, or with ``overwrite`` an earlier export."""
    if not out.exists():
        return
    if not out.is_dir():
        raise UserError(f"{out} is a file: choose a folder that does not exist yet")
    names = {path.name for path in out.iterdir()}
    if not names:
        return
    # Replacing removes the folder: it must hold nothing but what we wrote.
    if WEIGHTS not in names or not names <= {WEIGHTS, CONFIG_JSON, CARD, VIDEO}:
        raise UserError(f"{out} is not empty and not an export: choose another folder")
    if not overwrite:
        raise UserError(f"{out} holds an export already: choose another, or pass --overwrite")


def export(
    run: Path,
    out: Path,
    *,
    episodes: int,
    seed: int,
    overwrite: bool,
    device: str,
    allow_import: bool = False,
    push_to: str | None = None,
) -> list[float]:
    """Export the newest checkpoint of ``run`` to the folder ``out``, whole or not at all.

    Args:
        run: a run directory.
        out: missing or empty; with ``overwrite`` an earlier export.
        episodes: played to give the card its score and its video.
        seed: which; `sibe eval OUT` with the same two numbers gives the same returns.
        overwrite: replace an earlier export, which stays in place until the new one is whole.
        device: where to play.
        allow_import: as for ``load_policy``.
        push_to: "user/name" of the repository on the Hugging Face Hub that it will be pushed to,
            for the card to name.

    Returns:
        The returns of the episodes.
    """
    check_out(out, overwrite)
    policy = load_policy(run, device=device, allow_import=allow_import)
    agent, meta = policy.agent, RunFiles(run).read_meta()  # an export has no meta.json
    out = out.resolve()
    try:
        with replacing_folder(out) as temporary:
            config = to_json(policy.config)
            write_weights(
                temporary / WEIGHTS,
                agent.policy_networks(),
                policy.env_step,
                agent.action_dim,
                agent.state_size,
                config=digest(config),
            )
            text = json.dumps(config, indent=1) + "\n"
            write_atomic(temporary / CONFIG_JSON, text.encode())
            # Played by what is given away, not by what it was made of.
            given_away = load_policy(temporary, device=device, allow_import=allow_import)
            returns, video = _play(given_away, episodes, seed, temporary)
            source = "path/to/this/folder" if push_to is None else f"hf://{push_to}"
            card = model_card(
                policy.config, policy.env_step, returns, seed, meta, video=video, source=source
            )
            write_atomic(temporary / CARD, card.encode())
            publish_folder(temporary, out, replace=overwrite)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write the export {out} ({reason}): choose another") from error
    return returns


def _play(
    policy: TrainedPolicy, episodes: int, seed: int, folder: Path
) -> tuple[list[float], bool]:
    """Return the returns of ``episodes``, and whether the first could be filmed into ``folder``."""
    envs = make_eval_envs(policy.config.env, min(episodes, MOST_ENVS))
    frames: list[Frame] = []
    try:
        seeds, fps = numbered_seeds(seed, episodes), frame_rate(envs[0])
        played = evaluate(policy.agent.policy(), envs, seeds, record=frames, fixed_batch=True)
    finally:
        for env in envs:
            env.close()
    returns = [episode.episode_return for episode in played]
    try:
        write_mp4(folder / VIDEO, frames, fps)
    except UserError as error:
        print(f"no video: {error}")
        return returns, False
    return returns, True
