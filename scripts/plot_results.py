"""Draw the committed learning runs of results/: one panel per setting, one colour per method.

    .venv/bin/python scripts/plot_results.py results/cpu_cartpole

Reads <folder>/<task>-<background>/<method>/seed<k>/{eval,train}.csv, writes <folder>/curves.png and
prints the table of results/README.md. Thin lines are seeds, the thick one is their mean.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sibe.logs.csv_log import read_csv

COLOURS = {"sibe": "#0072b2", "none": "#999999"}


def main(folder: Path) -> None:
    settings = sorted(path.name for path in folder.iterdir() if path.is_dir())
    figure = Figure(figsize=(4.2 * (len(settings) + 1), 3.6), layout="constrained")
    axes = figure.subplots(1, len(settings) + 1)
    for axis, setting in zip(axes, settings, strict=False):
        for method in sorted(path.name for path in (folder / setting).iterdir()):
            runs = [read_csv(path) for path in sorted((folder / setting / method).glob("*/eval.csv"))]
            last = [run["episode_reward"][-1] for run in runs]
            print(f"| {setting} | {method} | " + " | ".join(f"{x:.0f}" for x in last) + " | ", end="")
            print(f"{np.mean(last):.0f} | {np.mean([r['total_time'][-1] for r in runs]) / 60:.1f} |")
            for run in runs:
                axis.plot(run["frame"], run["episode_reward"], color=COLOURS[method], lw=0.7, alpha=0.6)
            mean = np.mean([run["episode_reward"] for run in runs], axis=0)
            axis.plot(runs[0]["frame"], mean, color=COLOURS[method], lw=2.2, label=method)
        axis.set(title=setting, xlabel="environment steps (action repeat included)", ylim=(0, None))
        axis.legend(frameon=False)
    axes[0].set_ylabel("return of 10 evaluation episodes")
    losses = axes[-1]
    for setting, style in zip(settings, ("-", "--"), strict=False):
        for path in sorted((folder / setting / "sibe").glob("*/train.csv")):
            run = read_csv(path)
            label = f"{setting.split('-')[-1]}, {path.parent.name}"
            losses.plot(run["frame"], run["kl"], style, lw=1, color="#d55e00", label=f"KL {label}")
            losses.plot(
                run["frame"], 10 * run["infonce"], style, lw=1, color="#009e73", label=f"10·InfoNCE {label}"
            )
    losses.set(title="sibe: KL and InfoNCE (nats)", xlabel="environment steps", ylim=(0, 80))
    losses.legend(frameon=False, fontsize=6)
    figure.savefig(folder / "curves.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
