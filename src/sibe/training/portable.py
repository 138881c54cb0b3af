"""One result on any x86-64 processor with AVX2: what ``--deterministic portable`` fixes.

Libraries choose their code by the processor they find, and with it the order of summation. These
variables have all of them choose the same; they are read when a library is loaded, so the command
line starts itself again with them before it loads any. Only standard modules are imported here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

FLAG = "--deterministic"
PORTABLE = "portable"
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # The only branch of MKL that is the same on Intel's and AMD's processors; AVX2 is not.
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Haswell",
    # By the names of NumPy 2.4 and those before it.
    "NPY_DISABLE_CPU_FEATURES": (
        "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
    ),
    # Mesa's software rasterizer, also where there is a GPU.
    "LIBGL_ALWAYS_SOFTWARE": "1",
    "LP_NATIVE_VECTOR_WIDTH": "256",
    "LP_NUM_THREADS": "0",
    # Compiled for this very processor.
    "SIBE_KERNELS": "0",
}


def restart_if_asked(args: Sequence[str]) -> None:
    """Replace this process by the same command with the variables set, if it needs them.

    Args:
        args: the command line of sibe, from its verb on.
    """
    if _asked(args) and not are_set():
        sys.stdout.flush()
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **VARIABLES})


def are_set() -> bool:
    """Return whether this process was started with the variables."""
    return all(os.environ.get(name) == value for name, value in VARIABLES.items())


def how_to_set() -> str:
    """Return what to put before a command that runs a Python program."""
    return " ".join(["env", *(f"{name}='{value}'" for name, value in VARIABLES.items())])


def _asked(args: Sequence[str]) -> bool:
    if args[:1] == ["verify"]:
        return "--help" not in args
    if args[:1] != ["train"]:
        return False
    words = [word for arg in args for word in arg.split("=", 1)]
    pairs = list(pairwise(words))
    return (FLAG, PORTABLE) in pairs or any(
        _begun_portable(Path(value)) for flag, value in pairs if flag == "--resume"
    )


def _begun_portable(run: Path) -> bool:
    """Look into a run; whatever is wrong with it is said by the verb."""
    path = run / "config.json"
    try:
        if not path.is_file():  # a pipe would wait for ever
            return False
        with path.open("rb") as file:
            config = json.loads(file.read(1 << 20))
        return isinstance(config, dict) and config.get("deterministic") == PORTABLE
    except (OSError, ValueError, RecursionError):
        return False
