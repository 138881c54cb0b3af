"""Make a run of `sibe verify --out DIR` the reference result of the package.

Usage: python scripts/record_reference.py DIR
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sibe.training.reference_run import REFERENCE, read_result


def main() -> None:
    """Write what the run gave."""
    result = read_result(Path(sys.argv[1]))
    REFERENCE.write_text(json.dumps(result._asdict(), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {REFERENCE}")


if __name__ == "__main__":
    main()
