"""``make test-power``: cut the power at every instant of a run, resume, and count what comes of it.

Three runs are recorded by strace: one from its first file on, one that is extended, and one that
goes on from a damaged folder. ``disk_model`` says what a power cut may leave of them; the same
command then goes on from each such folder, in a fork of this process. Exits with 1 if anything that
a checkpoint had made safe was lost, or if anything went wrong without a word.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crash_states import CSV_FILES, CrashState, Promise, crash_states, promises
from disk_model import Disk
from resumed_run import GOOD, judge, resume, write_tree
from system_calls import record

from sibe.cli import main as cli

# 20 agent steps an episode, and a ring that wraps, so that episode files are deleted
_FLAGS = (
    *("--preset", "debug", "--method", "none", "--task", "registered_dot:Dot-v0", "--threads", "1"),
    *("--action-repeat", "1", "--initial-steps", "30", "--replay-capacity", "45", "--no-video"),
    *("--checkpoint-every", "20", "--eval-every", "20", "--eval-episodes", "1"),
)
_RUN = Path("runs/new/run")


@dataclass(frozen=True)
class Scenario:
    """A command, and what is done to the folder of the scenario before it, safely on the disk."""

    name: str
    env_steps: int
    prepare: Callable[[Path], None]
    safe_step: int
    """env step of the newest good checkpoint at its start"""


def _nothing(run: Path) -> None:
    pass


def _damage(run: Path) -> None:
    newest = max((run / "checkpoint").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    (run / "eval.csv").unlink()


SCENARIOS = (
    Scenario("a new run", 40, _nothing, 0),
    Scenario("extended", 60, _nothing, 40),
    Scenario("after damage", 60, _damage, 40),
)


def main() -> None:
    """Record, replay, print the table."""
    args = _arguments()
    with tempfile.TemporaryDirectory(prefix="sibe-power-") as work:
        sys.exit(_check(args, Path(work)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Cut the power at every instant of a run.")
    parser.add_argument("--seed", type=int, default=1, help="of the random states")
    parser.add_argument("--draws", type=int, default=2, help="random states at each instant")
    parser.add_argument("--most", type=int, default=0, help="states tried per scenario; 0 for all")
    return parser.parse_args()


def _check(args: argparse.Namespace, work: Path) -> int:
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    (work / "disk").mkdir()
    recorded = [_record(scenario, work) for scenario in SCENARIOS]
    shutil.copytree(work / "disk" / _RUN, work / "reference")
    _warm_up(work / "warm")
    safe = {0: Promise(0, (b"",) * len(CSV_FILES))}
    rng, outcomes = random.Random(args.seed), Counter[tuple[str, str]]()
    for scenario, disk in zip(SCENARIOS, recorded, strict=True):
        first = safe[scenario.safe_step]
        states = crash_states(disk, first, rng, args.draws)
        tried = rng.sample(states, args.most) if 0 < args.most < len(states) else states
        counts = f"{len(disk.operations)} operations, {len(states)} states, {len(tried)} tried"
        print(f"{scenario.name}: {counts}", flush=True)
        for number, state in enumerate(tried, 1):
            outcomes[_try(state, work), scenario.name] += 1
            if number % 100 == 0:
                print(f"  {number} tried", flush=True)
        safe |= {promise.env_step: promise for promise in promises(disk, first)}
    _print_table(outcomes)
    return 0 if all(outcome in GOOD for outcome, _ in outcomes) else 1


def _warm_up(folder: Path) -> None:
    """Load and look up here what every fork would have to.

    By a run without updates: torch refuses gradients in the fork of a process that computed some.
    """
    command = [*_command(folder, 20), "--initial-steps", "1000"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        cli.main(command)


def _command(disk: Path, env_steps: int) -> list[str]:
    return ["train", *_FLAGS, "--env-steps", str(env_steps), "--out", str(disk / _RUN)]


def _record(scenario: Scenario, work: Path) -> Disk:
    scenario.prepare(work / "disk" / _RUN)
    command = [sys.executable, "-m", "sibe", *_command(work / "disk", scenario.env_steps)]
    return record(command, work / "disk", work / "strace", os.environ)


def _try(state: CrashState, work: Path) -> str:
    write_tree(state.tree, work / "state")
    code = resume(_command(work / "state", SCENARIOS[-1].env_steps), work / "output")
    text = (work / "output").read_text()
    outcome = judge(state, code, text, work / "state" / _RUN, work / "reference")
    if outcome not in GOOD:
        print(f"WRONG: {outcome}\n  {state.text}\n{text}", flush=True)
    return outcome


def _print_table(outcomes: Counter[tuple[str, str]]) -> None:
    names = [scenario.name for scenario in SCENARIOS]
    print("| outcome | " + " | ".join(names) + " |\n|---|" + "--:|" * len(names))
    wrong = sorted({outcome for outcome, _ in outcomes} - set(GOOD))
    for outcome in (*GOOD, *wrong):
        print(f"| {outcome} | " + " | ".join(str(outcomes[outcome, n]) for n in names) + " |")
    print(f"{outcomes.total()} states, {sum(outcomes[o, n] for o in wrong for n in names)} wrong")


if __name__ == "__main__":
    main()
