"""Dropout that costs little on a CPU.

torch draws one Bernoulli number per element; here one 64-bit draw serves four elements, 16 bits each. The
keep probability is therefore a multiple of 2^-16, and the scale uses that very probability, so that the
expectation is exact. On other devices torch's own kernel is used.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEVELS = 1 << 16
_MIN_INT64, _MAX_INT64 = -(1 << 63), (1 << 63) - 1


def _dropped_below(p: float) -> int:
    """How many of the 2^16 levels are dropped."""
    return round(p * _LEVELS)


def keep_scale(like: Tensor, p: float) -> Tensor:
    """A fresh mask in `like`'s shape and type: 0 with probability p, else 1 / (1 - p), p rounded to 2^-16."""
    n_dropped = _dropped_below(p)
    size = like.numel()
    draws = torch.randint(_MIN_INT64, _MAX_INT64, (-(-size // 4),), dtype=torch.int64)
    levels = draws.view(torch.int16)[:size].view(like.shape)
    keep = levels >= n_dropped - _LEVELS // 2  # int16 levels start at -2^15
    return keep.to(like.dtype).mul_(_LEVELS / (_LEVELS - n_dropped))


class Dropout(nn.Module):
    """Srivastava et al. (2014): zero each element with probability p in training, scale the rest by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout probability must be at least 0 and below 1, got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * keep_scale(x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
