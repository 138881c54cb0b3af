"""The process of one run of a suite: ``python -m sibe.experiments.worker``, a request on stdin.

It ends with whoever started it, however that ends: an engine that is killed leaves nothing
behind. If the directory is in use it waits a while, because the run may have just been taken from
a machine that is not quite dead; the lock decides, so two processes never write in one run.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sibe.errors import InUseError, UserError
from sibe.training.parent import end_with_parent

if TYPE_CHECKING:
    from sibe.config.schema import RunConfig

PATIENCE = 60.0
"""Seconds to wait for a run directory that another process still holds."""


def train_when_free(config: RunConfig, path: Path, patience: float = PATIENCE) -> None:
    """Train, or continue, the run in ``path``, waiting for its lock if need be."""
    from sibe.training.run import train

    deadline = time.monotonic() + patience
    while True:
        try:
            train(config, path)
            return
        except InUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)


def main() -> None:
    """Read the request and train."""
    request: dict[str, Any] = json.load(sys.stdin)
    end_with_parent(request["parent"])
    # Imports torch: only now, so that the line above is soon.
    from sibe.catalogue.run_config import from_json

    sys.argv = list(request["command"])  # for meta.json: what the user typed
    try:
        train_when_free(from_json(request["config"]), Path(request["path"]))
    except UserError as error:
        sys.exit(_refused(str(error)))
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        sys.exit(_refused(f"{error.strerror or error}{where}"))


def _refused(message: str) -> int:
    print(f"sibe: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
