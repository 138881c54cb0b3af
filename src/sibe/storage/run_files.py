"""The files of a run directory: the only module that knows their names.

Whoever reads a run uses ``RunFiles``, which takes no lock and writes nothing; whoever writes one
holds a ``RunDirectory``, which has the same attributes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sibe.errors import UserError, printable
from sibe.storage.json_file import read_json

CONFIG_JSON = "config.json"
META_JSON = "meta.json"
TRAIN_CSV = "train.csv"
EVAL_CSV = "eval.csv"
EVAL_EPISODES_CSV = "eval_episodes.csv"
LOCK = ".lock"
EXPORTED_WEIGHTS = "model.safetensors"
"""What makes a folder an exported policy, which has a config.json too and is no run."""


class RunFiles:
    """The paths of the run in the folder ``path``, whether they exist or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_json = path / CONFIG_JSON
        self.meta_json = path / META_JSON
        self.train_csv = path / TRAIN_CSV
        self.eval_csv = path / EVAL_CSV
        self.eval_episodes_csv = path / EVAL_EPISODES_CSV
        self.curve_png = path / "curve.png"
        self.tracker_json = path / "tracker.json"
        self.checkpoints = path / "checkpoint"
        self.replay = path / "replay"
        self.videos = path / "video"
        self.tensorboard = path / "tensorboard"
        self.lock = path / LOCK
        self.folders = (self.checkpoints, self.replay, self.videos, self.tensorboard)

    def read_config(self) -> dict[str, Any]:
        """Return the run's config.

        Raises:
            UserError: if there is no run, or its config cannot be read.
        """
        if not self.path.is_dir():
            raise UserError(f"there is no run directory {self.path}: check the path")
        try:
            config = read_json(self.config_json, within=self.path)
        except FileNotFoundError:
            raise UserError(
                f"{self.path} is not a run directory: it has no {CONFIG_JSON}"
            ) from None
        except OSError as error:
            raise UserError(f"cannot read {self.config_json}: {error.strerror}") from error
        except ValueError as error:
            raise UserError(
                f"{self.config_json} is damaged ({error}): put back a copy of it"
            ) from error
        if not isinstance(config, dict):
            raise UserError(
                f"{self.config_json} is damaged (not a JSON object): put back a copy of it"
            )
        return config

    def read_meta(self) -> dict[str, Any]:
        """Return what was collected when the run began; {} if that is missing or damaged."""
        try:
            meta = read_json(self.meta_json, within=self.path)
        except (OSError, UserError, ValueError):
            return {}
        return meta if isinstance(meta, dict) else {}

    def list_videos(self) -> list[Path]:
        """Return the videos of evaluations, oldest first; their names can be printed."""
        return sorted(p for p in self.videos.glob("*.mp4") if printable(p.name) == p.name)
