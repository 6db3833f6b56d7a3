"""What a bitext looks like, in numbers, before anything is learned from it."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from mtkit.data.filters import SeenPairs
from mtkit.data.sources import Bitext
from mtkit.errors import DataError

BUCKETS = (5, 10, 15, 20, 30, 40, 50, 75, 100)  # longest line of each bucket, in words; one more for the rest
_BLOCK_PAIRS = 10_000


@dataclass
class SideStats:
    """One side. A word is what stands between white space."""

    words: int = 0
    characters: int = 0  # code points
    longest: int = 0  # words
    empty: int = 0  # lines without a word
    histogram: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))  # lines by bucket

    def add(self, line: str) -> int:
        """Count a line; returns its words."""
        words = len(line.split())
        self.words += words
        self.characters += len(line)
        self.longest = max(self.longest, words)
        self.empty += not words
        self.histogram[bisect_left(BUCKETS, words)] += 1
        return words


@dataclass
class BitextStats:
    """Both sides and what concerns the pairs."""

    src: SideStats = field(default_factory=SideStats)
    trg: SideStats = field(default_factory=SideStats)
    pairs: int = 0
    empty: int = 0  # pairs with an empty side
    unequal: int = 0  # pairs with more than twice as many words on one side, empty ones aside
    identical: int = 0  # pairs with the same text on both sides
    duplicates: int = 0  # pairs that stood before
    invalid: int = 0  # lines with invalid UTF-8


def measure(bitext: Bitext, progress: Callable[[int], None] | None = None) -> BitextStats:
    """Read a bitext once and count. `progress` is called with the number of pairs so far.

    Raises: DataError as `Bitext.pairs` does, and when there is no pair.
    """
    stats = BitextStats()
    seen = SeenPairs()
    pairs = bitext.pairs()
    while block := list(itertools.islice(pairs, _BLOCK_PAIRS)):
        for src, trg in block:
            n_src, n_trg = stats.src.add(src), stats.trg.add(trg)
            if not n_src or not n_trg:
                stats.empty += 1
            else:
                stats.unequal += max(n_src, n_trg) > 2 * min(n_src, n_trg)
                stats.identical += src == trg
        stats.pairs += len(block)
        stats.duplicates += len(block) - int(seen.add(block).sum())
        if progress is not None:
            progress(stats.pairs)
    if not stats.pairs:
        raise DataError(f"{bitext.name}: holds no sentence pair")
    stats.invalid = bitext.invalid
    return stats
