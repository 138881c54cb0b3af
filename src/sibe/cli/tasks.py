"""`sibe tasks`: the tasks as a list, or as one picture."""

from __future__ import annotations

from pathlib import Path

from sibe.config.values import Count, Natural, configuration
from sibe.errors import UserError


@configuration()
class Tasks:
    """List the tasks, or show the paper's six in their three visual settings as one picture."""

    picture: Path | None = None
    """Write the sheet of six tasks and three settings to this PNG file."""
    clips: Path | None = None
    """Clip bank for the video setting, made by `sibe videos prepare` (default: generated clips)."""
    size: Count = 168
    """Height and width of each picture on the sheet, in pixels."""
    seed: Natural = 1
    """Which episodes are shown."""

    def run(self) -> int:
        """Print the list or write the sheet."""
        if self.picture is None:
            from sibe.envs.tasks import describe_tasks

            if self != Tasks():
                raise UserError("--size, --clips and --seed go with --picture FILE.png")

            print(describe_tasks())
            return 0
        from sibe.analysis.task_sheet import write_task_sheet

        write_task_sheet(self.picture, clips=self.clips, size=self.size, seed=self.seed)
        print(f"wrote {self.picture}")
        return 0
