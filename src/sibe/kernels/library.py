"""The C files beside this one, compiled for this machine's own processor when it is first needed.

The result is kept in the user's cache, in a folder that nobody else can write to, under the hash of
its content; whatever is not as expected is compiled anew. Without a C compiler, or if anything
about it fails, there is no library and the plain code does the same work more slowly.
``SIBE_KERNELS=0`` asks for that.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from sibe.errors import UserError
from sibe.storage.atomic import write_atomic
from sibe.storage.cache import cache_folder, private_folder
from sibe.storage.contained_file import read_file
from sibe.storage.temporary_folder import remove_leftovers, temporary_folder

_FILES = ("kernels", "frame_convolutions", "half_convolutions", "layers")
_SOURCES = tuple(Path(__file__).with_name(f"{name}.c") for name in _FILES)
_HEADERS = tuple(Path(__file__).with_name(name) for name in ("vectors.h", "frame_layers.h"))
_FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC")
_SECONDS = 60
_FUNCTIONS = (
    *("sibe_convolve_bytes", "sibe_weight_gradient", "sibe_stack_crops"),
    *("sibe_convolve_frames", "sibe_frame_gradients"),
    *("sibe_has_halves", "sibe_convolve_halves", "sibe_half_gradients"),
    *("sibe_lay_over", "sibe_side_by_side"),
)
_PREFIX = "sibe-kernels-"
_LARGEST = 1 << 24


class Found(NamedTuple):
    """The library, or None and the reason."""

    library: ctypes.CDLL | None
    reason: str


def library() -> ctypes.CDLL | None:
    """Return the compiled functions, if there are any."""
    return find().library


def functions() -> ctypes.CDLL:
    """Return the compiled functions, which must be there."""
    found = library()
    assert found is not None
    return found


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
        return _find(compiler)
    except (OSError, ValueError, UserError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", b"") or b""
        return Found(None, " ".join((str(error), told.decode(errors="replace"))).strip())


def _find(compiler: list[str]) -> Found:
    threads = _openmp()
    build = functools.partial(_compile, compiler, threads)
    by = f"compiled by {shlex.join(compiler)}"
    folder = private_folder("kernels")
    if folder is None:
        with _workshop(Path(tempfile.gettempdir())) as place:
            found = _load(build(place))
        return Found(found, f"{by} at each start: {cache_folder()} is open to other users")
    return Found(_kept(folder, _fingerprint(compiler, threads), build), by)


def _kept(folder: Path, fingerprint: str, build: Callable[[Path], Path]) -> ctypes.CDLL:
    """Load the library that ``folder`` keeps; build it if there is none, or not a whole one."""
    remove_leftovers(folder, _PREFIX)
    for path in folder.glob(f"kernels-{fingerprint}-*.so"):
        try:
            # Loading half a library would end the process: its name has the hash of its content.
            data = read_file(path, within=folder, limit=_LARGEST)
            if path.stem.endswith(hashlib.sha256(data).hexdigest()):
                return _load(path)
        except (OSError, UserError):
            pass
        _remove(path)
    with _workshop(folder) as place:
        data = build(place).read_bytes()
    path = folder / f"kernels-{fingerprint}-{hashlib.sha256(data).hexdigest()}.so"
    write_atomic(path, data)
    return _load(path)


def _workshop(parent: Path) -> AbstractContextManager[Path]:
    return temporary_folder(parent, _PREFIX, mode=0o700)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _load(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    missing = [name for name in _FUNCTIONS if not hasattr(loaded, name)]
    if missing:
        raise OSError(f"{path} lacks {', '.join(missing)}")
    return loaded


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
    program = Path(shutil.which(compiler[0]) or compiler[0]).resolve()
    version = f"{program} {program.stat().st_mtime_ns}"  # another one may know the processor better
    parts = (*compiler, version, str(threads), platform.machine(), *_FLAGS, *sorted(features))
    code = b"".join(path.read_bytes() for path in (*_HEADERS, *_SOURCES))
    return hashlib.sha256(code + "\n".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: list[str], threads: Path, folder: Path) -> Path:
    """Compile in ``folder`` and return the library."""
    made = folder / "kernels.so"
    objects = [str(folder / f"{source.stem}.o") for source in _SOURCES]
    with ThreadPoolExecutor() as pool:
        for done in [
            pool.submit(_run, *compiler, *_FLAGS, "-c", str(source), "-o", to)
            for source, to in zip(_SOURCES, objects, strict=True)
        ]:
            done.result()
    # Without -fopenmp, which would bring the system's library in.
    _run(*compiler, "-shared", *objects, str(threads), "-o", str(made))
    return made


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True, timeout=_SECONDS)
