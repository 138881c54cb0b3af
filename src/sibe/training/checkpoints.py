"""What a run can be continued from: its checkpoints, and the episode files that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sibe.errors import UserError
from sibe.logs.csv_log import read_csv
from sibe.replay.episodes import Episode, episode_path, prune, read_episode, write_episode
from sibe.storage import checkpoint
from sibe.storage.run_directory import RunDirectory


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    def save(
        self,
        env_step: int,
        state: dict[str, Any],
        *,
        needs: Iterable[int],
        logs: Mapping[str, checkpoint.Recorded],
        config: str,
    ) -> None:
        """Write a checkpoint that needs some episodes, then drop what none needs any more."""
        folder = self._directory.checkpoints
        checkpoint.save(folder, env_step, state, needs=needs, logs=logs, config=config)
        checkpoint.keep_newest(self._directory.checkpoints)
        self.prune_episodes()

    def load(
        self, use: Callable[[int, dict[str, Any]], None], report: Callable[[str], None]
    ) -> tuple[int, dict[str, Any]] | None:
        """Return env step and state of the newest checkpoint that ``use`` takes; None without any.

        Newer ones are set aside: the logs and episodes that belong to them will not be kept.
        """
        folder = self._directory.checkpoints
        found = checkpoint.load_newest(folder, map_location="cpu", report=report, use=use)
        if found is not None:
            checkpoint.set_newer_aside(folder, found[0])
        return found

    def write_episode(self, number: int, episode: Episode) -> None:
        """Write a finished episode."""
        write_episode(self._directory.replay, number, episode)

    def read_episode(self, number: int) -> Episode:
        """Return an episode that was written."""
        return read_episode(episode_path(self._directory.replay, number))

    def prune_episodes(self) -> None:
        """Delete the episode files that no checkpoint needs."""
        prune(self._directory.replay, checkpoint.needed_episodes(self._directory.checkpoints))

    def refuse_to_lose_logs(self, first: int) -> None:
        """Refuse to begin anew over results; ``first`` is the env step of the first checkpoint."""
        try:
            frames = read_csv(self._directory.train_csv)["frame"]
        except (UserError, KeyError):  # none yet, or cut short by a kill: nothing to lose
            return
        # One episode may end between the moment a checkpoint is due and the checkpoint.
        if (frames >= first).sum() > 1:
            raise UserError(
                f"{self._directory.path} has results but no checkpoint to go on from: put its "
                "checkpoints back, or choose another folder"
            )
