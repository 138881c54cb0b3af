"""``kernels.c``, compiled for this machine's own processor when it is first needed.

The result is kept in the user's cache. Without a C compiler, or if anything about it fails, there
is no library and the plain code does the same work more slowly. ``SIBE_KERNELS=0`` asks for that.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from sibe.cache import cache_folder

_SOURCE = Path(__file__).with_name("kernels.c")
_FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC")
_SECONDS = 60


class Found(NamedTuple):
    """The library, or None and the reason."""

    library: ctypes.CDLL | None
    reason: str


def library() -> ctypes.CDLL | None:
    """Return the compiled functions, if there are any."""
    return find().library


def at(tensor: Tensor) -> ctypes.c_void_p:
    """Return where the numbers of ``tensor`` begin."""
    return ctypes.c_void_p(tensor.data_ptr())


@functools.cache
def find() -> Found:
    """Load the library; compile it before if this machine has not yet."""
    if os.environ.get("SIBE_KERNELS") == "0":
        return Found(None, "switched off by SIBE_KERNELS=0")
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        return Found(None, "no C compiler: install gcc")
    try:
        threads = _openmp()
        path = cache_folder() / f"kernels-{_fingerprint(compiler, threads)}.so"
        if not path.exists():
            _compile(compiler, threads, path)
        return Found(ctypes.CDLL(str(path)), f"compiled by {compiler}")
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", b"") or b""
        return Found(None, " ".join((str(error), told.decode(errors="replace"))).strip())


def _openmp() -> Path:
    """Return the OpenMP library that torch has loaded: two teams of threads hinder each other."""
    used = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines())
    found = next((name for name in used if Path(name).name.startswith("libgomp")), None)
    if found is None:
        raise OSError("torch runs without GNU OpenMP here")
    return Path(found)


def _fingerprint(compiler: str, threads: Path) -> str:
    """Name what the machine code depends on: a home folder may serve many kinds of machines."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    features = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    parts = (compiler, str(threads), platform.machine(), *_FLAGS, *sorted(features))
    return hashlib.sha256(_SOURCE.read_bytes() + "\n".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: str, threads: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        code, made = Path(folder) / "kernels.o", Path(folder) / path.name
        _run(compiler, *_FLAGS, "-c", str(_SOURCE), "-o", str(code))
        # Without -fopenmp, which would bring the system's library in.
        _run(compiler, "-shared", str(code), str(threads), "-o", str(made))
        made.replace(path)  # one step: another process sees it whole or not at all


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True, timeout=_SECONDS)
