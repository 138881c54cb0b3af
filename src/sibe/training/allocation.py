"""Keep large tensors' memory instead of handing it back to the kernel after every use.

glibc maps and unmaps every block above a threshold; a training step on the CPU then spends up to a
third of its time on page faults. Raising the thresholds once cures it; elsewhere this does nothing.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST, _NEVER = 2**31 - 1, -1


def keep_memory() -> bool:
    """Raise glibc's thresholds; return whether that was possible."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_M_MMAP_THRESHOLD, _LARGEST), (_M_TRIM_THRESHOLD, _NEVER))
    return all([mallopt(*setting) for setting in settings])  # a list: try both in any case
