"""What a head does, told from its attention weights: diagonal, adjacent, stripes, uniform, or mixed.

The classes are those of the chapter's figure 1-15 as far as they can be told without a parser (Clark et al. 2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Label = Literal["diagonal", "adjacent", "stripes", "uniform", "mixed"]

MAJORITY = 0.5  # of the weight, for a pattern to be a head's own
NEARLY_UNIFORM = 0.9  # of the greatest entropy
_NOTICED = 0.1
_CHOICE = 6  # columns that a row must see for its spread to say something


class Traits(NamedTuple):
    """Means over the rows of some maps of one head; 1 is the most, except for `lag`."""

    diagonal: float  # weight on the row's own relative place
    adjacent: float  # weight on the positions right beside it
    stripes: float  # weight on the one column of each map that is looked at most
    evenness: float  # entropy over its maximum, log of the positions that can be looked at
    noticed: float  # columns with a weight above 0.1
    zeros: float  # share of the visible columns whose weight is exactly 0
    top_3: float  # weight of the three columns that get most
    lag: float  # |j / columns - i / rows|, weighted: 0 on the diagonal (chapter: diagonality)


def traits(maps: Sequence[Tensor], *, causal: bool = False) -> Traits:
    """Traits of one head from its maps, [rows, columns] each.

    Rows that see fewer than six columns have little choice. Maps with so few are left out, where there are others.

    causal: row i sees the columns up to i alone, as in a decoder's self-attention. The first five rows of such a map
    are left out; of a shorter map all rows but the last.
    """
    wide = [weights for weights in maps if weights.size(1) >= _CHOICE]
    found = [_traits(weights.double(), causal) for weights in wide or maps]
    return Traits(*(sum(values) / len(found) for values in zip(*found, strict=True)))


def label(head: Traits) -> Label:
    """The pattern that holds most of a head's weight.

    uniform: evenness above 0.9. diagonal: more than half on the row's own place. adjacent: more than half on that and
    the positions beside it. stripes: more than half on one column of each map. Otherwise mixed.
    """
    if head.evenness > NEARLY_UNIFORM:
        return "uniform"
    if head.diagonal > MAJORITY:
        return "diagonal"
    if head.stripes > MAJORITY:
        return "stripes"
    return "adjacent" if head.diagonal + head.adjacent > MAJORITY else "mixed"


def even_rows(maps: Sequence[Tensor], least_columns: int) -> tuple[int, int]:
    """Rows whose entropy is above 0.9 of the greatest, and all rows, of the maps with so many columns or more."""
    n_even = n_rows = 0
    for weights in maps:
        if weights.size(1) >= least_columns:
            evenness = torch.special.entr(weights.double()).sum(1) / math.log(weights.size(1))
            n_even += int((evenness > NEARLY_UNIFORM).sum())
            n_rows += len(weights)
    return n_even, n_rows


def crossing_deficit(weights: Tensor, border: int) -> float:
    """How much less weight crosses a border than goes as far elsewhere: the mean over the rows of [n, n].

    Each pair of positions with the border between them is set against the mean of the pairs, with as many positions
    from row to column, that lie on one side of it. A head that looks at the word before, or at all words alike, has 0;
    one whose blocks end at the border has what it should have sent across.
    """
    place = torch.arange(len(weights))
    crosses = (place[:, None] < border) != (place < border)
    deficit = 0.0
    for apart in range(1 - len(weights), len(weights)):
        alike, across = weights.diagonal(apart), crosses.diagonal(apart)
        if across.any() and not across.all():
            deficit += (alike[~across].mean() * across.sum() - alike[across].sum()).item()
    return deficit / len(weights)


def divergence(first: Tensor, second: Tensor, *, causal: bool = False) -> float:
    """Jensen-Shannon divergence of two maps of one shape, nats, the mean over the rows: 0 for equal, log 2 at most.

    causal: the first row, which sees one column alone, is left out where there are others.
    """
    if causal and len(first) > 1:
        first, second = first[1:], second[1:]
    middle = (first + second) / 2
    kl = [
        torch.special.xlogy(each, each).sum(-1) - torch.special.xlogy(each, middle).sum(-1) for each in (first, second)
    ]
    return ((kl[0] + kl[1]) / 2).mean().item()


def _traits(weights: Tensor, causal: bool) -> list[float]:
    n_rows, n_columns = weights.shape
    rows = torch.arange(min(_CHOICE - 1, n_rows - 1) if causal else 0, n_rows)
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
        ((weights == 0) & (columns < visible[:, None])).double().sum(1).div(visible).mean().item(),
        weights.topk(min(3, n_columns), dim=1).values.sum(1).mean().item(),
        (weights * lag).sum(1).mean().item(),
    ]
