"""`sibe probe`: what a run's representations know of the robot, and what of the background."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from sibe.config.values import Bounds, Natural, configuration

LEAST_EPISODES = 10  # two in each of five folds


@configuration()
class Probe:
    """Measure what c and z know of the robot, and what of the background."""

    run_: Positional[Path]
    """A run directory or an export."""
    compare: tuple[Path, ...] = ()
    """More of them, shown the same observations; the first run's policy plays."""
    out: Path = Path("probe")
    """Folder for probe.csv and probe.png."""
    untrained: bool = True
    """Also the first run's networks as they were before training: what chance looks like."""
    background: str | None = None
    """Another background than the first run's: clean, noise, video or video_random."""
    clips: str | None = None
    """Another clip bank."""
    episodes: Annotated[int, Bounds(LEAST_EPISODES)] = 40
    """Evaluation episodes; half are played by random actions."""
    seed: Natural = 0
    """Which episodes."""
    device: str = "auto"
    """auto, cpu, cuda, …"""
    allow_import: bool = False
    """Let the run's task import the module that it names (module:Name-v0)."""

    def run(self) -> int:
        """Print the table, write it and the picture."""
        from sibe.analysis.representation.compared_runs import load_runs
        from sibe.analysis.representation.probe import UNTRAINED, probe_runs
        from sibe.analysis.representation.probe_dataset import behind_robot
        from sibe.analysis.representation.probe_picture import draw_probe
        from sibe.analysis.representation.probe_table import as_csv, as_text
        from sibe.logs.picture_file import check_png, write_file, write_png

        picture, table = self.out / "probe.png", self.out / "probe.csv"
        check_png(picture)
        paths = (self.run_, *self.compare)
        policies = load_runs(paths, device=self.device, allow_import=self.allow_import)
        trained = next(iter(policies.values())).config.env
        env = behind_robot(trained, self.background, self.clips)
        scores, observations = probe_runs(
            policies, env, untrained=self.untrained, episodes=self.episodes, seed=self.seed
        )
        print(as_text(scores))
        title = f"{env.task} ({env.background}), {observations} observations"
        print(f"{title} of {self.episodes} episodes; 95 % intervals over episodes")
        write_file(table, as_csv(scores).encode())
        write_png(draw_probe(scores, title=title, untrained=UNTRAINED), picture)
        print(f"wrote {table} and {picture}")
        return 0
