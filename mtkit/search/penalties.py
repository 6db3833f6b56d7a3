"""What turns a log-probability into the score that hypotheses are ranked by.

A length penalty, so that short translations do not win for being short; a coverage penalty, so that those do not that
leave source words out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from mtkit.errors import RequestError

Normalization = Literal["power", "gnmt"]
Length = TypeVar("Length", int, float, Tensor)

LARGEST_ALPHA = (
    10.0  # beyond it the power of a long sentence leaves the range of numbers, and length is all that counts
)


@dataclass(frozen=True)
class LengthPenalty:
    """The divisor of a hypothesis' log-probability, a function of |Y|: its tokens, EOS counted.

    - `power`: |Y|^alpha; alpha 1 is the mean log-probability of a token.
    - `gnmt`: ((5 + |Y|) / 6)^alpha, Wu et al. (2016), eq. 14. Milder: under it the same alpha favours shorter ones.

    Never falls as |Y| grows, which the stopping rule of beam search relies on.

    Raises: RequestError when alpha is not between 0 and 10, or the normalization is unknown.
    """

    alpha: float = 1.0
    normalization: Normalization = "power"

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= LARGEST_ALPHA:
            raise RequestError(f"length penalty: expected a number from 0 to {LARGEST_ALPHA:g}, got {self.alpha:g}")
        if self.normalization not in ("power", "gnmt"):
            raise RequestError(f"length normalization: expected one of power, gnmt; got '{self.normalization}'")

    def __call__(self, length: Length) -> Length:
        """The divisor for one length (a number) or for many (a tensor of floating point)."""
        if self.normalization == "gnmt":
            return ((5 + length) / 6) ** self.alpha
        return length**self.alpha


# Wu et al. take the logarithm of a sum of attention that is never 0; ours can be, in fp32 and under local attention.
_LEAST_COVERAGE = 1e-6


def coverage_penalty(coverage: Tensor, is_counted: Tensor, beta: float) -> Tensor:
    """beta x sum over source tokens of log(min(attention received, 1)): 0 for full coverage, else below (Wu et al.
    2016, eq. 14); a token that received nothing counts as 10^-6.

    Args:
        coverage: [..., src_len], the attention that each source token has received, over all target tokens and EOS.
        is_counted: broadcasts to the same, False for padding and for the source's own EOS, which is no word to cover.
    """
    logs = coverage.double().clamp(_LEAST_COVERAGE, 1.0).log()
    return beta * torch.where(is_counted, logs, 0.0).sum(-1)


def counted_for_coverage(src_pad_mask: Tensor) -> Tensor:
    """[batch, src_len], True = a token of the source's text: neither padding nor EOS, its last real token."""
    return torch.nn.functional.pad(~src_pad_mask, (0, 1))[:, 1:]
