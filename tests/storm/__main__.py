"""A storm of faults: ``make test-storm``, or ``python -m storm --seed 1 [--short] [--case NAME]``.

Every line is a case and what it came to; a case that fails prints the command that repeats it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path

from sibe.errors import printable
from storm import damage, hostile, kills, warm_process
from storm.case import Case, FailedCase
from storm.specimens import Specimens
from storm.summary import Summary

_SHORT = {"damage": 30, "hostile": 30}
_LEAST = {"kill": 200, "damage": 300, "hostile": 200}


def main() -> int:
    """Do the cases that the command line asks for; 0 if none failed."""
    parser = argparse.ArgumentParser(prog="python -m storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides all that is random")
    parser.add_argument("--short", action="store_true", help="a sample of all cases, for CI")
    parser.add_argument("--case", default="*", help="only cases of this name, or pattern of names")
    asked = parser.parse_args()
    warm_process.load()
    with tempfile.TemporaryDirectory(prefix="sibe-storm-") as name:
        folder, began = Path(name), time.monotonic()
        specimens = Specimens(folder / "specimens")
        chosen = _choose(specimens, asked.seed, asked.case, short=asked.short)
        print(f"{len(chosen)} cases, seed {asked.seed}", flush=True)
        summary = Summary()
        for case in chosen:
            _do(case, folder / "work", asked.seed, summary)
        minutes = (time.monotonic() - began) / 60
    print(f"\n{summary.table()}\n\nseed {asked.seed}, {minutes:.0f} minutes")
    enough = asked.short or asked.case != "*"
    for family, least in {} if enough else _LEAST.items():
        if summary.faults(family) < least:
            print(f"only {summary.faults(family)} faults of the kind {family}, not {least}")
            return 1
    return 1 if summary.failures else 0


def _choose(specimens: Specimens, seed: int, pattern: str, *, short: bool) -> list[Case]:
    families = {
        "kill": kills.cases(specimens),
        "damage": damage.cases(specimens),
        "hostile": hostile.cases(specimens),
    }
    if short:
        chance = random.Random(f"{seed}")
        for family, number in _SHORT.items():
            families[family] = chance.sample(families[family], number)
        # One chain of each kind; a suite has many processes, each of which has to import torch.
        chains = {
            case.kind: case for case in chance.sample(families["kill"], len(families["kill"]))
        }
        families["kill"] = [case for kind, case in chains.items() if "suite" not in kind]
    return [c for cases in families.values() for c in cases if fnmatch(c.name, pattern)]


def _do(case: Case, work: Path, seed: int, summary: Summary) -> None:
    work.mkdir()
    try:
        result = case.do(work, random.Random(f"{seed} {case.name}"))
        _say(f"{case.name}: {result.outcome.value}; {result.note}"[:400])
        summary.add(case, result)
    except FailedCase as failed:
        _say(f"{case.name}: FAILED: {failed}")
        _say(f"    repeat it: make test-storm SEED={seed} CASE='{case.name}'")
        summary.add(case, None)
    shutil.rmtree(work)


def _say(line: str) -> None:
    print(printable(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
