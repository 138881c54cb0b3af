"""Draw the committed learning runs of results/: one panel per setting, one color per method.

    .venv/bin/python scripts/plot_results.py results/cpu_cartpole

Reads <folder>/<task>-<background>/<method>/seed<k>/{eval,train}.csv, writes <folder>/curves.png and
prints the rows of its table. Thin lines are seeds of SIBE and plain SAC, thick ones means; in
brackets, how many seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sibe.catalogue.registry import find_agent
from sibe.logs.csv_log import read_csv
from sibe.storage.run_files import EVAL_CSV, TRAIN_CSV

FULL = 100_000  # env steps of a finished run
SEEDS_SHOWN = ("sibe", "none")  # of the other methods only the mean is drawn
Run = dict[str, Any]


def draw_returns(axis: Any, folder: Path, names: Sequence[str], title: str) -> None:
    """Draw the evaluations of some methods in one setting and print their rows of the table."""
    for number, name in enumerate(names):
        tables = sorted((folder / name).glob(f"*/{EVAL_CSV}"))
        runs: list[Run] = [read_csv(path) for path in tables]
        last = [float(run["episode_reward"][-1]) for run in runs]
        minutes = np.mean([run["total_time"][-1] for run in runs]) / 60
        steps = {int(run["frame"][-1]) for run in runs}
        seeds = " | ".join(f"{value:.0f}" for value in last)
        seeds += "".join(f" (at {step})" for step in steps if step < FULL)
        print(f"| {folder.name} | {name} | {seeds} | {np.mean(last):.0f} | {minutes:.1f} |")
        method, _, variant = name.partition("-")
        entry = find_agent(method)
        label = f"{entry.label}, {variant}" if variant else entry.label
        color = f"C{number}" if variant else entry.color or "#222222"
        for run in runs if name in SEEDS_SHOWN else ():
            axis.plot(run["frame"], run["episode_reward"], color=color, lw=0.7, alpha=0.6)
        mean = np.mean([run["episode_reward"] for run in runs], axis=0)
        width = 2.2 if name in SEEDS_SHOWN and len(runs) > 1 else 1.2
        axis.plot(runs[0]["frame"], mean, color=color, lw=width, label=f"{label} ({len(runs)})")
    axis.set(title=title, xlabel="environment steps (action repeat included)")
    axis.set_ylim(0, 1000)  # one scale for all settings
    axis.legend(frameon=False, fontsize=8)


def panels(folder: Path) -> list[tuple[Path, list[str], str]]:
    """Return what is drawn: the methods of each setting, and its ablations beside SIBE."""
    found = []
    for setting in sorted(path for path in folder.iterdir() if path.is_dir()):
        names = sorted(path.name for path in setting.iterdir())
        ablations = [name for name in names if name.startswith("sibe-")]
        found.append((setting, [name for name in names if name not in ablations], setting.name))
        if ablations:
            found.append((setting, ["sibe", *ablations], f"{setting.name}, ablations"))
    return found


def draw_losses(axes: dict[str, Any], folder: Path, color: str) -> None:
    """Draw KL and InfoNCE of the SIBE runs of one setting."""
    for number, path in enumerate(sorted((folder / "sibe").glob(f"*/{TRAIN_CSV}"))):
        run = read_csv(path)
        label = None if number else folder.name.split("-")[-1]
        for name, axis in axes.items():
            axis.plot(run["frame"], run[name], color=color, lw=0.8, label=label)


def main(folder: Path) -> None:
    """Write curves.png."""
    settings = sorted(path for path in folder.iterdir() if path.is_dir())
    shown = panels(folder)
    across = -(-(len(shown) + 1) // (1 + (len(shown) > 3)))
    down = -(-(len(shown) + 1) // across)
    figure = Figure(figsize=(4.1 * across, 3.8 * down), layout="constrained")
    grid = figure.add_gridspec(2 * down, across)
    for place, (setting, names, title) in enumerate(shown):
        row, column = divmod(place, across)
        axis = figure.add_subplot(grid[2 * row : 2 * row + 2, column])
        draw_returns(axis, setting, names, title)
        if column == 0:
            axis.set_ylabel("mean return of the evaluation episodes")
    row, column = divmod(len(shown), across)
    losses = {
        name: figure.add_subplot(grid[2 * row + half, column])
        for half, name in enumerate(("kl", "infonce"))
    }
    for number, setting in enumerate(settings):
        draw_losses(losses, setting, f"C{number}")
    losses["kl"].set(ylabel="KL (nats)", title="sibe", yscale="log")
    losses["infonce"].set(ylabel="InfoNCE (nats)", xlabel="environment steps")
    losses["kl"].legend(frameon=False, fontsize=8)
    figure.savefig(folder / "curves.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
