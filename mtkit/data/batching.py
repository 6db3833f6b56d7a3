"""Which sentence pairs go into a batch together, and in which order training sees the batches."""

from __future__ import annotations

import numpy as np


class EpochBatches:
    """Batches of pairs of similar length, under a token budget, in a seeded order.

    A batch holds at most `batch_tokens` tokens a side: real tokens, EOS included, padding not counted; and at most
    `batch_sentences` pairs, if that is given. A pair that is longer than the budget is a batch of its own. Every epoch
    holds each pair exactly once; its batches depend on the seed and the number of the epoch alone, so a resumed run
    finds its place again.
    """

    def __init__(
        self,
        src_lengths: np.ndarray,
        trg_lengths: np.ndarray,
        batch_tokens: int,
        seed: int,
        batch_sentences: int | None = None,
    ) -> None:
        self._src_lengths = src_lengths  # [pairs] int32, tokens with EOS
        self._trg_lengths = trg_lengths
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._batch_sentences = batch_sentences or len(src_lengths)

    def epoch(self, n: int) -> list[np.ndarray]:
        """The batches of epoch `n` (from 0) in training order; each holds row numbers of the store."""
        random = np.random.default_rng((self._seed, n))
        batches = self._cut(self._sorted(random))
        return [batches[i] for i in random.permutation(len(batches))]

    def _sorted(self, random: np.random.Generator) -> np.ndarray:
        """Row numbers by the longer side, then by how much longer it is; equal pairs in random order.

        The longer side bounds the padding of both, also for a pair of very unequal sides. The second key rises
        and falls in turn from one length to the next, so that a batch which takes in the end of one length and
        the start of the next holds similar pairs. On Multi30k with 4096 tokens this leaves 4 % padding on the
        source side and 3 % on the target side; sorting by target, then source length leaves 15 % and 1 %.
        """
        shuffled = random.permutation(len(self._trg_lengths))
        src, trg = self._src_lengths[shuffled], self._trg_lengths[shuffled]
        longer = np.maximum(src, trg)
        return shuffled[np.lexsort((np.where(longer % 2, src - trg, trg - src), longer))]

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        """Consecutive slices of `order`, each as long as the budget of both sides allows."""
        src_ends = np.cumsum(self._src_lengths[order], dtype=np.int64)
        trg_ends = np.cumsum(self._trg_lengths[order], dtype=np.int64)
        batches = []
        start = src_before = trg_before = 0
        while start < len(order):
            end = min(
                int(np.searchsorted(src_ends, src_before + self._batch_tokens, side="right")),
                int(np.searchsorted(trg_ends, trg_before + self._batch_tokens, side="right")),
                start + self._batch_sentences,
            )
            end = max(end, start + 1)
            batches.append(order[start:end])
            src_before, trg_before = int(src_ends[end - 1]), int(trg_ends[end - 1])
            start = end
        return batches
