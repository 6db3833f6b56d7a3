"""Memory of the training process: what it has used, and keeping freed pages."""

from __future__ import annotations

import ctypes
import math
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # glibc malloc.h
_TOP_PAD_BYTES = 64 << 20


class FreedPages:
    """Freed memory stays in the process, up to a limit.

    Every update frees and asks again for the same hundreds of MiB; fetching zeroed pages from the kernel each time
    costs a tenth of the training time. But batches differ in shape, so the kept pages grow into ever more holes: above
    the limit they are given back. Does nothing on a GPU and where there is no glibc.
    """

    def __init__(self, device: torch.device) -> None:
        self.limit_mib = math.inf
        self._libc = _glibc() if device.type == "cpu" else None
        if self._libc is not None:
            for name, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_TOP_PAD, _TOP_PAD_BYTES)):
                self._libc.mallopt(name, value)

    def allow(self, needed_mib: float) -> None:
        """Set the limit: three times what the largest batch needed. With twice, pages go back every few updates."""
        if self._libc is not None:
            self.limit_mib = 3 * needed_mib

    def give_back_excess(self) -> None:
        if self._libc is not None and _resident_mib() > self.limit_mib:
            self._libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None


def _resident_mib() -> float:
    """Memory of this process that is in RAM now (Linux)."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        pages = int(stream.read().split()[1])
    return pages * resource.getpagesize() / 2**20


def forget_peak_memory(device: torch.device) -> None:
    """Let `peak_memory_mib` begin anew, where the system can (proc(5), clear_refs)."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory_mib(device: torch.device) -> float:
    """The most memory used since it was forgotten: of the GPU where training runs there, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # macOS counts bytes, Linux KiB
