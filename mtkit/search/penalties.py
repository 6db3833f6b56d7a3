"""Length penalties: what a log-probability is divided by, so that short translations do not win for being short."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

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
