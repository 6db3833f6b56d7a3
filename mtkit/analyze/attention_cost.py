"""Time and memory of attention over n positions, with the n x n matrix held whole and block by block."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from mtkit.errors import MtkitError

Method = Literal["whole", "blocks"]
_WIDTH = 64  # of the one head


class Cost(NamedTuple):
    """What one attention took."""

    seconds: float
    peak_mib: float  # memory beyond what the process held before


def attention_cost(n: int, method: Method) -> Cost:
    """Seconds and peak memory of one head of attention over n positions, fp32, measured in a process of its own.

    whole: softmax(Q K^T / sqrt(d)) V with the matrix in memory. blocks: torch's fused kernel, which never holds it.

    Raises: MtkitError when the process fails, for want of memory most likely.
    """
    command = [sys.executable, "-m", "mtkit.analyze.attention_cost", str(n), method]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise MtkitError(f"attention over {n} positions ({method}) could not be measured: {done.stderr.strip()[-200:]}")
    seconds, peak = map(float, done.stdout.split())
    return Cost(seconds, peak)


def attend(tensors: tuple[Tensor, ...], method: str) -> Tensor:
    """Attention with both methods of `attention_cost`; queries, keys and values are [..., n, d]."""
    queries, keys, values = tensors
    if method == "blocks":
        return F.scaled_dot_product_attention(queries, keys, values)
    weights = torch.softmax(queries @ keys.transpose(-1, -2) * queries.size(-1) ** -0.5, dim=-1)
    return weights @ values


def _measure(n: int, method: str) -> None:
    """Print seconds and MiB."""
    from mtkit.analyze.complexity import seconds

    with torch.no_grad():
        small = torch.randn(3, 1, 1, 64, _WIDTH).unbind(0)
        attend(small, method)  # what the libraries allocate once is not attention's
        tensors = torch.randn(3, 1, 1, n, _WIDTH).unbind(0)
        before = _start_peak()
        attend(tensors, method)
        peak = _peak_mib() - before  # of one call: of many, the system also counts what it has not yet taken back
        print(seconds(lambda: attend(tensors, method)), max(0.0, peak))


_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def _start_peak() -> float:
    """Begin a new peak where the system can (Linux keeps the parent's in ru_maxrss), and say what it is now, in MiB."""
    if _RESET.exists():
        _RESET.write_text("5")
    return _peak_mib()


def _peak_mib() -> float:
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    _measure(int(sys.argv[1]), sys.argv[2])
