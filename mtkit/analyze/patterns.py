"""What a head does, told from its attention weights: adjacent, fixed columns, uniform, blocks, anything else.

The classes are those of the chapter's figure 1-15 as far as they can be told without a parser (Clark et al. 2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Label = Literal["diagonal", "adjacent", "stripes", "uniform", "mixed"]

_MAJORITY = 0.5  # of the weight, for a pattern to be a head's own
_NEARLY_UNIFORM = 0.9  # of the greatest entropy
_NOTICED = 0.1


class Traits(NamedTuple):
    """Means over the rows of some maps of one head; 1 is the most, except for `lag`."""

    diagonal: float  # weight on the row's own relative place
    adjacent: float  # weight on the positions right beside it
    stripes: float  # weight on the one column of each map that is looked at most
    evenness: float  # entropy over its maximum, log of the positions that can be looked at
    noticed: float  # columns with a weight above 0.1
    top_3: float  # weight of the three columns that get most
    lag: float  # |j / columns - i / rows|, weighted: 0 on the diagonal (chapter: diagonality)
    largest: float  # the largest weight of a row


def traits(maps: Sequence[Tensor], *, causal: bool = False) -> Traits:
    """Traits of one head from its maps, [rows, columns] each.

    causal: row i sees the columns up to i alone, as in a decoder's self-attention. The first row of such a map, which
    has no choice, is left out.
    """
    found = [_traits(weights.double(), causal) for weights in maps]
    return Traits(*(sum(values) / len(found) for values in zip(*found, strict=True)))


def label(head: Traits) -> Label:
    """The pattern that holds most of a head's weight.

    uniform: evenness above 0.9. diagonal: more than half on the row's own place. adjacent: more than half on that and
    the positions beside it. stripes: more than half on one column of each map. Otherwise mixed.
    """
    if head.evenness > _NEARLY_UNIFORM:
        return "uniform"
    if head.diagonal > _MAJORITY:
        return "diagonal"
    if head.stripes > _MAJORITY:
        return "stripes"
    return "adjacent" if head.diagonal + head.adjacent > _MAJORITY else "mixed"


def block_mass(weights: Tensor, boundaries: Sequence[int]) -> float:
    """The share of weight that stays inside its own block, [n, n], where blocks begin at 0 and at each boundary.

    By chance it would be the sum of the squares of the blocks' shares of n.
    """
    starts = [0, *boundaries, len(weights)]
    inside = sum(weights[first:end, first:end].sum().item() for first, end in zip(starts, starts[1:], strict=False))
    return inside / weights.sum().item()


def divergence(first: Tensor, second: Tensor) -> float:
    """Jensen-Shannon divergence of two maps of one shape, nats, the mean over the rows: 0 for equal, log 2 at most."""
    middle = (first + second) / 2
    kl = [
        torch.special.xlogy(each, each).sum(-1) - torch.special.xlogy(each, middle).sum(-1) for each in (first, second)
    ]
    return ((kl[0] + kl[1]) / 2).mean().item()


def _traits(weights: Tensor, causal: bool) -> list[float]:
    n_rows, n_columns = weights.shape
    rows = torch.arange(1 if causal and n_rows > 1 else 0, n_rows)
    weights = weights[rows]
    columns = torch.arange(n_columns)
    # Of unequal lengths the diagonal is a slope: row i of n stands at column i m / n.
    own = rows if n_rows == n_columns else (rows * n_columns) // n_rows
    distance = (columns - own[:, None]).abs()
    visible = (rows + 1) if causal else torch.full_like(rows, n_columns)
    most = visible.double().log().clamp_min(math.log(2))
    lag = (columns.double() / n_columns - rows[:, None].double() / n_rows).abs()
    return [
        (weights * (distance == 0)).sum(1).mean().item(),
        (weights * (distance == 1)).sum(1).mean().item(),
        weights.mean(0).max().item(),
        (torch.special.entr(weights).sum(1) / most).mean().item(),
        (weights > _NOTICED).double().sum(1).mean().item(),
        weights.topk(min(3, n_columns), dim=1).values.sum(1).mean().item(),
        (weights * lag).sum(1).mean().item(),
        weights.amax(1).mean().item(),
    ]
