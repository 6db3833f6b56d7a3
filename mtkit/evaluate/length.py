"""Short and long sentences of a test set, where it has enough of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mtkit.evaluate.bleu import MIN_SEGMENTS, length_rows

LONG_WORDS = 30
"""A group of long sentences begins here or later."""


class LengthGroups(NamedTuple):
    """The shortest and the longest sentences of a test set, in words (between blanks) of the source."""

    short_words: str
    short_rows: Sequence[int]
    long_words: str
    long_rows: Sequence[int]
    shortage: str  # why length claims cannot be tested on this text; empty if they can


def length_groups(sources: Sequence[str]) -> LengthGroups:
    """The first and the last group of ten words' breadth that have `MIN_SEGMENTS` segments or more."""
    filled = [(words, low, rows) for words, low, rows in length_rows(sources) if len(rows) >= MIN_SEGMENTS and low > 0]
    if not filled:
        return LengthGroups("", (), "", (), f"no group of lengths has {MIN_SEGMENTS} segments")
    (short_words, _, short_rows), (long_words, low, long_rows) = filled[0], filled[-1]
    shortage = ""
    if low < LONG_WORDS or len(filled) < 2:
        n_long = sum(len(line.split()) >= LONG_WORDS for line in sources)
        shortage = f"of {len(sources)} sentences {n_long} have {LONG_WORDS} words or more, too few for two groups"
    return LengthGroups(short_words, short_rows, long_words, long_rows, shortage)
