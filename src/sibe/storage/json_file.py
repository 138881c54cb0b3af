"""JSON files of a run directory, clip bank or export, which may come from elsewhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from sibe.storage.contained_file import read_file

_LARGEST = 1 << 26


def digest(values: Any) -> str:
    """Return the SHA-256 of JSON values, whatever the order of keys and the spaces in a file."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_json(path: Path, *, within: Path) -> Any:
    """Return what ``path``, a file of the folder ``within``, holds.

    Raises:
        UserError, OSError: if it cannot be opened.
        ValueError: if it is not JSON, too deep for Python, or has text that is not Unicode.
    """
    data = read_file(path, within=within, limit=_LARGEST)
    try:
        value = json.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair could not be written
    return value
