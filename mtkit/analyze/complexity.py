"""What attention, feed-forward, recurrent and convolutional layers cost: closed forms, counts and times.

One multiplication with its addition is 2 FLOPs; softmax, activations and biases are left out, as in the chapter.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class AttentionStages(NamedTuple):
    """FLOPs of one multi-head attention over n positions of width d (chapter, figure 1-14)."""

    projections: int  # Q, K and V
    scores: int
    weighted_sum: int
    output: int

    @property
    def total(self) -> int:
        return sum(self)


def attention_flops(n: int, d: int) -> AttentionStages:
    """6 n d^2, 2 n^2 d, 2 n^2 d, 2 n d^2: whatever the number of heads."""
    return AttentionStages(6 * n * d * d, 2 * n * n * d, 2 * n * n * d, 2 * n * d * d)


def feed_forward_flops(n: int, d: int, d_ff: int | None = None) -> int:
    """16 n d^2 with d_ff = 4 d."""
    return 4 * n * d * (4 * d if d_ff is None else d_ff)


def recurrent_flops(n: int, d: int, n_gates: int = 1) -> int:
    """Two products of d x d a gate and step: 4 n d^2 for a plain layer."""
    return 4 * n * d * d * n_gates


def convolution_flops(n: int, d: int, k: int, *, gated: bool = True) -> int:
    """k matrices d x d a position; a gated layer has twice as many."""
    return 2 * k * n * d * d * (2 if gated else 1)


def counted_flops(run: Callable[[], object]) -> int:
    """FLOPs of the matrix products that `run` makes, as torch counts them."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def seconds(run: Callable[[], object], *, at_least: float = 0.2) -> float:
    """Seconds of one call: the least of several, after one that is not counted."""
    with torch.no_grad():
        run()
        found: list[float] = []
        begun = time.perf_counter()
        while time.perf_counter() - begun < at_least or len(found) < 3:
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    return min(found)


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """b in cost = a size^b: the slope of a straight line through the logarithms, by least squares."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)


def reaches(layer: Callable[[Tensor], Tensor], n: int, d: int) -> list[list[bool]]:
    """Whether output i depends on input j, [n][n], by gradients of `layer`, [1, n, d] -> [1, n, d]."""
    x = torch.randn(1, n, d, dtype=torch.float64, requires_grad=True)
    output = layer(x)
    return [_reads(output, i, x) for i in range(n)]


def receptive_field(layer: Callable[[Tensor], Tensor], n: int, d: int) -> int:
    """Inputs that the middle one of n outputs depends on, by gradients of `layer`, [1, n, d] -> [1, n, d]."""
    x = torch.randn(1, n, d, dtype=torch.float64, requires_grad=True)
    return sum(_reads(layer(x), n // 2, x))


def _reads(output: Tensor, i: int, x: Tensor) -> list[bool]:
    """Whether position i of the output depends on each position of x."""
    (gradient,) = torch.autograd.grad(output[0, i].sum(), x, retain_graph=True)
    found: list[bool] = (gradient[0].abs().sum(-1) > 0).tolist()
    return found


def path_length(layer_of: Callable[[int], Callable[[Tensor], Tensor]], n: int, d: int, most: int) -> int | None:
    """Fewest layers of a kind with which the last position depends on the first; None if `most` do not suffice.

    layer_of: a stack of so many layers.
    """
    for n_layers in range(1, most + 1):
        if reaches(layer_of(n_layers), n, d)[-1][0]:
            return n_layers
    return None


TRAINING_FLOPS = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""Sustained single-precision FLOP/s of a GPU that Vaswani et al. (2017), §6.1, estimate training costs with."""


def training_cost(hours: float, n_gpus: int, gpu: str) -> float:
    """FLOPs of a training: time x GPUs x sustained FLOP/s (Vaswani et al. 2017, table 2)."""
    return hours * 3600 * n_gpus * TRAINING_FLOPS[gpu]


class _OperationCount(TorchDispatchMode):
    """Counts what is asked of the tensor library."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.total += 1
        return operation(*args, **(kwargs or {}))


def operations(run: Callable[[], object]) -> int:
    """Tensor operations that `run` asks for, one after the other: what cannot be done in parallel is among them."""
    with torch.no_grad(), _OperationCount() as counter:
        run()
    return counter.total
