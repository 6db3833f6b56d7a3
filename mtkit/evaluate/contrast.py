"""Sums and differences of BLEU scores with bootstrap intervals: has one system lost more than another, gained more?

Each resample draws segments with replacement (Koehn 2004), the same ones for every system and seed that is scored on
the same rows, so that what makes a segment hard for all of them does not count as a difference between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mtkit.evaluate.bleu import BOOTSTRAP_SAMPLES, ScoreSettings, segment_counts, total_bleu

_SEED = 12345  # as sacreBLEU's own resampling


class Term(NamedTuple):
    """`weight` times the BLEU of a system on some rows, the mean over its seeds."""

    weight: float
    hypotheses: Sequence[Sequence[str]]  # translations of the whole test set, a list for each seed
    rows: Sequence[int]


class Contrast(NamedTuple):
    """A weighted sum of BLEU scores."""

    scores: tuple[float, ...]  # BLEU of each term, without its weight
    value: float
    low: float  # 95% bootstrap interval of the value
    high: float


def contrast(terms: Sequence[Term], references: Sequence[str], *, trg_lang: str | None = None) -> Contrast:
    """The weighted sum of the terms' BLEU.

    Raises: RequestError as `corpus_scores`.
    """
    settings = ScoreSettings(trg_lang=trg_lang)
    random = np.random.default_rng(_SEED)
    drawn: dict[tuple[int, ...], np.ndarray] = {}
    counted: dict[int, list[np.ndarray]] = {}
    scores, resampled = [], np.zeros(BOOTSTRAP_SAMPLES)
    for term in terms:
        rows = tuple(term.rows)
        if rows not in drawn:
            drawn[rows] = random.choice(rows, size=(BOOTSTRAP_SAMPLES, len(rows)))
        if id(term.hypotheses) not in counted:
            counted[id(term.hypotheses)] = [segment_counts(lines, references, settings) for lines in term.hypotheses]
        seeds = counted[id(term.hypotheses)]
        scores.append(float(np.mean([total_bleu(counts[list(rows)].sum(0)) for counts in seeds])))
        for number, sample in enumerate(drawn[rows]):
            resampled[number] += term.weight * np.mean([total_bleu(counts[sample].sum(0)) for counts in seeds])
    low, high = np.percentile(resampled, [2.5, 97.5])
    value = sum(term.weight * score for term, score in zip(terms, scores, strict=True))
    return Contrast(tuple(scores), value, float(low), float(high))
