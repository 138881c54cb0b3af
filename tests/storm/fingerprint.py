"""What a finished run has come to, as one line of text: ``python tests/storm/fingerprint.py RUN``.

Two runs of one command have the same line, killed in between or not; all but the clock is in it.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1]))  # as a script it finds only its own folder

from run_records import flat, without_wall_clock

from sibe.storage import checkpoint

CSV_FILES = ("train.csv", "eval.csv", "eval_episodes.csv")


def fingerprint(run: Path) -> str:
    """Return a hash of the csv files, the last checkpoint and the names of the episode files."""
    digest = hashlib.sha256()
    for name in CSV_FILES:
        digest.update(repr(without_wall_clock(run / name)).encode())
    found = checkpoint.load_newest(run / "checkpoint", map_location="cpu", report=print)
    assert found is not None, f"{run} has no checkpoint"
    env_step, state = found
    for name, value in flat({"agent": state["agent"], "replay": state["replay"]}).items():
        content = value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value)
        digest.update(name.encode() + (content if isinstance(content, bytes) else content.encode()))
    kept = sorted(path.name for path in (run / "replay").iterdir())
    digest.update(repr((env_step, kept)).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    print(fingerprint(Path(sys.argv[1])))
