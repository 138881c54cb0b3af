"""`sibe embed`: a run's observations on a grid, neighbors where their representations are near."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from sibe.config.values import Count, Natural, configuration


@configuration()
class Embed:
    """Show which images are close in z: t-SNE on a 20×15 grid (and the same for c)."""

    run_: Positional[Path]
    """A run directory or an export."""
    out: Path
    """PNG file for z; that for c is written beside it as NAME_c.png."""
    background: str | None = None
    """Another background than it was trained with: clean, noise, video or video_random."""
    clips: str | None = None
    """Another clip bank."""
    episodes: Count = 12
    """Evaluation episodes to take images from; half are played by random actions."""
    seed: Natural = 0
    """Which episodes."""
    device: str = "auto"
    """auto, cpu, cuda, …"""
    allow_import: bool = False
    """Let the run's task import the module that it names (module:Name-v0)."""

    def run(self) -> int:
        """Write the pictures and print the mean distances in them."""
        from sibe.analysis.representation.embedding import write_grids
        from sibe.analysis.representation.probe_dataset import behind_robot
        from sibe.logs.picture_file import check_png
        from sibe.policy.load import load_policy

        check_png(self.out)
        policy = load_policy(self.run_, device=self.device, allow_import=self.allow_import)
        env = behind_robot(policy.config.env, self.background, self.clips)
        grids = write_grids(policy, env, self.out, episodes=self.episodes, seed=self.seed)
        for grid in grids:
            print(f"wrote {grid.path} ({grid.latent})")
        if env.background != "clean":
            print("cells apart, on average:  same pose   same background   any two")
            for grid in grids:
                print(
                    f"{grid.latent:>23s}  {grid.same_pose:10.1f}  {grid.same_background:16.1f}"
                    f"  {grid.any_two:8.1f}"
                )
        return 0
