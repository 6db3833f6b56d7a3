"""How far apart a source word and its translation are in time, with the source read forwards and backwards."""

from __future__ import annotations


def lags(n_words: int, *, reverse: bool) -> list[int]:
    """Steps between reading source word i and writing target word i, for i = 1 … n in a word-for-word translation.

    The source is read in the steps 1 … n, the target written in the steps n+1 … 2n: forwards every lag is n, backwards
    they are 1, 3, … 2n - 1. The mean is n both times, the least is not (Sutskever et al. 2014, §3.3).
    """
    read_at = {i: n_words + 1 - i if reverse else i for i in range(1, n_words + 1)}
    return [n_words + i - read_at[i] for i in range(1, n_words + 1)]
