"""`sibe ladder`: which part of an agent does not learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from sibe.config.schema import MAX_THREADS
from sibe.config.values import Bounds, Count, Natural, configuration
from sibe.errors import UserError


@configuration()
class LadderCommand:
    """Replace one part of the agent at a time by something perfect and see what the rest learns."""

    preset: str = "cpu"
    """Where all settings come from: paper, cpu or debug."""
    task: str = "cartpole_swingup"
    """DeepMind Control task or Gymnasium id that observes a vector."""
    background: str = "clean"
    """What is painted behind the robot: clean, noise, video or video_random."""
    clips: str | None = None
    """Clip bank for the video background (default: generated clips)."""
    method: str = "sibe"
    """A method that is plugged into SAC."""
    env_steps: Count = 40_000
    """Simulator steps of each rung that acts."""
    updates: Count = 1000
    """Minibatches of the rungs supervised and alone."""
    errors: tuple[float, ...] = (0.1,)
    """Observation errors of the rung error, as shares of each coordinate's standard deviation."""
    rungs: tuple[str, ...] = ("state", "error", "supervised", "alone", "agent")
    """Which of them; state is run whenever another but agent is asked for."""
    seed: Natural = 1
    """One seed gives one result."""
    threads: Annotated[int, Bounds(0, MAX_THREADS)] = 0
    """CPU threads for learning; 0 for OMP_NUM_THREADS, or all cores if it is unset."""
    device: str = "auto"
    """auto, cpu, cuda, …"""
    out: Path | None = None
    """Write every number to this csv file, too."""

    def run(self) -> int:
        """Climb, then print the table."""
        from sibe.catalogue.presets import preset_config
        from sibe.catalogue.run_config import check
        from sibe.envs.tasks import check_background, check_clips
        from sibe.ladder.rungs import check_ladder, climb, make_ladder
        from sibe.ladder.table import as_csv, as_text
        from sibe.storage.atomic import write_atomic
        from sibe.training.determinism import compute_with
        from sibe.training.run import resolve

        if self.out is not None and not self.out.parent.is_dir():
            raise UserError(f"there is no folder {self.out.parent} to write {self.out.name} to")
        check_background(self.background)
        check_clips(self.background, self.clips)
        configs = []
        for method in ("none", self.method):
            config = preset_config(
                self.preset, task=self.task, method=method, background=self.background
            )
            config = replace(
                config,
                seed=self.seed,
                threads=self.threads,
                device=self.device,
                env=replace(config.env, clips=self.clips),
            )
            configs.append(config)
        ladder = make_ladder(
            *configs,
            env_steps=self.env_steps,
            updates=self.updates,
            errors=self.errors,
            rungs=self.rungs,
        )
        check_ladder(ladder)
        for config in (ladder.plain, ladder.whole):
            check(config)
        ladder = ladder._replace(plain=resolve(ladder.plain), whole=resolve(ladder.whole))
        compute_with(ladder.whole.threads)
        rows = climb(ladder, lambda line: print(line, flush=True))
        print(f"\n{as_text(rows)}")
        if self.out is not None:
            write_atomic(self.out, as_csv(rows).encode())
            print(f"\nwrote {self.out}")
        return 0
