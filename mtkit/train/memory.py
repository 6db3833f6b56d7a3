"""Memory of the training process: what it has used, and keeping freed pages."""

from __future__ import annotations

import ctypes
import resource
import sys

import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # glibc malloc.h
_TOP_PAD_BYTES = 64 << 20


def keep_freed_pages() -> bool:
    """Ask glibc to keep freed memory in the process instead of giving it back to the kernel after every tensor.

    Every update frees and asks again for the same hundreds of MiB; fetching zeroed pages each time costs a tenth of
    the training time. Returns False where there is no glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, _TOP_PAD_BYTES))
    return all(mallopt(name, value) == 1 for name, value in settings)


def peak_memory_mib(device: torch.device) -> float:
    """The most memory used so far: of the GPU where training runs there, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # macOS counts bytes, Linux KiB
