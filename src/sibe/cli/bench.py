"""`sibe bench`: speed and memory of this machine, as ratios and as numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from sibe.config.schema import MAX_THREADS
from sibe.config.values import Bounds, configuration


@configuration()
class Benchmark:
    """Measure speed and memory on this CPU, against a reference implementation and its limits.

    Takes about ten minutes, and means something only if nothing else is running.
    """

    only: tuple[str, ...] = ()
    """Just these: update, sampling, memory, environment, training, checkpoint, size, processes."""
    quick: bool = False
    """Tiny sizes, under a minute: to see that it works; the numbers mean nothing."""
    threads: Annotated[int, Bounds(0, MAX_THREADS)] = 0
    """CPU threads for learning; 0 for OMP_NUM_THREADS, or all cores if it is unset."""
    json: Path | None = None
    """Write every measurement to this file, too."""
    picture: Path | None = None
    """Draw where the time goes into this PNG file; goes with --json."""

    def run(self) -> int:
        """Measure, then print the table."""
        from sibe.bench.picture import check_name, write_picture
        from sibe.bench.results import table
        from sibe.bench.suite import run_bench
        from sibe.errors import UserError
        from sibe.storage.atomic import write_atomic

        if self.picture is not None:
            check_name(self.picture)
            if self.json is None or (self.only and "training" not in self.only):
                raise UserError("--picture goes with --json FILE and the training benchmark")
        for file in (self.json, self.picture):
            if file is not None and not file.parent.is_dir():
                raise UserError(f"there is no folder {file.parent} to write {file.name} to")
        result = run_bench(self.only, quick=self.quick, threads=self.threads)
        print(table(result))
        if self.json is not None:
            write_atomic(self.json, (json.dumps(result, indent=1) + "\n").encode())
            if self.picture is not None:
                write_picture(self.json, self.picture)
        return 0
