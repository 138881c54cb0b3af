"""`sibe export`: a run's policy as a folder to give away."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from sibe.config.values import Count, Natural, configuration


@configuration()
class Export:
    """Write a trained policy as safetensors, config.json, a model card and a video."""

    run_: Positional[Path]
    """A run directory."""
    out: Path
    """Folder to write; it must not exist yet, or be empty."""
    episodes: Count = 10
    """Episodes played for the score on the card; the first is the video."""
    seed: Natural = 0
    """Which episodes; `sibe eval OUT` with the same numbers gives the same returns."""
    overwrite: bool = False
    """Replace an export that is already there."""
    push: str | None = None
    """Upload it as well: user/name on the Hugging Face Hub (pip install 'sibe[hub]')."""
    device: str = "auto"
    """auto, cpu, cuda, …"""
    allow_import: bool = False
    """Let the run's task import the module that it names (module:Name-v0)."""

    def run(self) -> int:
        """Export, and say what can be done with it."""
        import numpy as np

        from sibe.logs.amounts import count
        from sibe.policy.export import export
        from sibe.policy.hub import check_push, push

        if self.push is not None:
            check_push(self.push)
        returns = export(
            self.run_,
            self.out,
            episodes=self.episodes,
            seed=self.seed,
            overwrite=self.overwrite,
            device=self.device,
            allow_import=self.allow_import,
            push_to=self.push,
        )
        score = f"{np.mean(returns):.1f} ± {np.std(returns):.1f}"
        print(f"wrote {self.out}: return {score} over {count(len(returns), 'episode')}")
        if self.push is not None:
            print(f"pushed to {push(self.out, self.push)}: sibe eval hf://{self.push}")
        print(f"next: sibe eval {self.out} --video out.mp4")
        return 0
