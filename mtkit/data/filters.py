"""Which sentence pairs are dropped, counted by cause. A decision is always about a pair, never about a side."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from mtkit.data.script import is_in_script
from mtkit.recipe import FilterSection

CAUSES = ("empty side", "too long", "length ratio", "wrong script", "duplicate")
EMPTY, TOO_LONG, RATIO, SCRIPT, DUPLICATE = CAUSES


class PairFilter:
    """The filters of a recipe over one stream of sentence pairs; the first cause that applies is counted.

    - empty side: a side without a token, or with nothing but white space
    - too long: a side of more than `max_length` tokens, EOS not counted
    - length ratio: more than `max_ratio` times as many tokens on one side as on the other
    - wrong script: a side most of whose letters are of another script than `src_script` or `trg_script`
    - duplicate: a pair, the text of both sides, that has been kept before
    """

    def __init__(self, section: FilterSection) -> None:
        self._section = section
        self._seen = SeenPairs()
        self.dropped = dict.fromkeys(CAUSES, 0)

    def keep(
        self, pairs: Sequence[tuple[str, str]], src_lengths: Sequence[int], trg_lengths: Sequence[int]
    ) -> list[int]:
        """Positions of the pairs to keep, from the next block of the stream and its lengths in tokens."""
        kept = []
        for i, (pair, n_src, n_trg) in enumerate(zip(pairs, src_lengths, trg_lengths, strict=True)):
            cause = self._cause(pair, n_src, n_trg)
            if cause is None:
                kept.append(i)
            else:
                self.dropped[cause] += 1
        if self._section.drop_duplicates:
            new = self._seen.add([pairs[i] for i in kept])
            self.dropped[DUPLICATE] += len(kept) - int(new.sum())
            kept = [i for i, is_new in zip(kept, new, strict=True) if is_new]
        return kept

    def _cause(self, pair: tuple[str, str], n_src: int, n_trg: int) -> str | None:
        if not n_src or not n_trg or not pair[0].strip() or not pair[1].strip():
            return EMPTY
        if max(n_src, n_trg) > self._section.max_length:
            return TOO_LONG
        if self._section.max_ratio is not None and max(n_src, n_trg) > self._section.max_ratio * min(n_src, n_trg):
            return RATIO
        scripts = (self._section.src_script, self._section.trg_script)
        if any(script and not is_in_script(text, script) for text, script in zip(pair, scripts, strict=True)):
            return SCRIPT
        return None


class SeenPairs:
    """The pairs of a stream so far, in 8 bytes each; a Python set would take ten times as much.

    A pair is known by 64 bits of a hash: among 40 million pairs, the chance that any two different ones agree
    is 1 in 20,000. The hashes lie in sorted runs, of which two of similar size become one, as in a merge sort.
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def add(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Add the next pairs and tell of each whether it is new: bool [pairs]."""
        digests = (hashlib.blake2b("\n".join(pair).encode("utf-8", "replace"), digest_size=8) for pair in pairs)
        hashes = np.frombuffer(b"".join(digest.digest() for digest in digests), dtype=np.uint64)
        unique, first = np.unique(hashes, return_index=True)
        unseen = np.ones(len(unique), dtype=bool)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, unique), len(run) - 1)
            unseen &= run[at] != unique
        new = np.zeros(len(hashes), dtype=bool)
        new[first[unseen]] = True
        added = unique[unseen]
        while self._runs and len(self._runs[-1]) <= 2 * len(added):
            added = np.sort(np.concatenate([self._runs.pop(), added]))
        if len(added):
            self._runs.append(added)
        return new
