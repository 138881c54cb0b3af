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
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from sibe.errors import UserError
from sibe.storage.atomic import write_atomic
from sibe.storage.cache import cache_folder

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
    try:
        compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
        if shutil.which(compiler[0]) is None:
            return Found(None, f"there is no C compiler {compiler[0]}: install gcc")
        threads = _openmp()
        path = cache_folder() / f"kernels-{_fingerprint(compiler, threads)}.so"
        return Found(_load(compiler, threads, path), f"compiled by {shlex.join(compiler)}")
    except (OSError, ValueError, UserError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", b"") or b""
        return Found(None, " ".join((str(error), told.decode(errors="replace"))).strip())


def _load(compiler: list[str], threads: Path, path: Path) -> ctypes.CDLL:
    if path.exists():
        try:
            return ctypes.CDLL(str(path))
        except OSError:  # damaged
            pass
    _compile(compiler, threads, path)
    return ctypes.CDLL(str(path))


def _openmp() -> Path:
    """Return the OpenMP library that torch has loaded: two teams of threads hinder each other."""
    lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    mapped = {Path(name) for line in lines for name in line.split(maxsplit=5)[5:]}
    found = sorted(path for path in mapped if path.name.startswith("libgomp"))
    if not found:
        raise OSError("torch runs without GNU OpenMP here")
    torchs = (path for path in found if "torch" in path.parts)  # another package may have its own
    return next(torchs, found[0])


def _fingerprint(compiler: list[str], threads: Path) -> str:
    """Name what the machine code depends on: a home folder may serve many kinds of machines."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    features = {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    parts = (*compiler, str(threads), platform.machine(), *_FLAGS, *sorted(features))
    return hashlib.sha256(_SOURCE.read_bytes() + "\n".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: list[str], threads: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        code, made = Path(folder) / "kernels.o", Path(folder) / path.name
        _run(*compiler, *_FLAGS, "-c", str(_SOURCE), "-o", str(code))
        # Without -fopenmp, which would bring the system's library in.
        _run(*compiler, "-shared", str(code), str(threads), "-o", str(made))
        # On disk, and in one step: half a library would end every process that loads it.
        write_atomic(path, made.read_bytes())


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True, timeout=_SECONDS)
