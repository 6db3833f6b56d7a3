"""Sums and differences of BLEU scores with bootstrap intervals: has one system lost more than another, gained more?

Each resample draws segments with replacement (Koehn 2004), the same ones for every system and seed that is scored on
the same rows, so that what makes a segment hard for all of them does not count as a difference between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """A weighted sum of BLEU scores, or another value made of them."""

    scores: tuple[float, ...]  # BLEU of each term, without its weight
    value: float
    low: float  # 95% bootstrap interval of the value
    high: float
    by_seed: tuple[float, ...]  # the value of each seed alone


def contrast(
    terms: Sequence[Term],
    references: Sequence[str],
    *,
    trg_lang: str | None = None,
    value_of: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Contrast:
    """The weighted sum of the terms' BLEU; the terms have as many seeds.

    value_of: another value, from the BLEU of the terms, [terms, …] to […]; their weights count for nothing then.

    Raises: RequestError as `corpus_scores`.
    """
    settings = ScoreSettings(trg_lang=trg_lang)
    random = np.random.default_rng(_SEED)
    drawn: dict[tuple[int, ...], np.ndarray] = {}
    counted: dict[int, list[np.ndarray]] = {}
    whole, resampled = [], []
    for term in terms:
        rows = tuple(term.rows)
        if rows not in drawn:
            drawn[rows] = random.choice(rows, size=(BOOTSTRAP_SAMPLES, len(rows)))
        if id(term.hypotheses) not in counted:
            counted[id(term.hypotheses)] = [segment_counts(lines, references, settings) for lines in term.hypotheses]
        seeds = counted[id(term.hypotheses)]
        whole.append([total_bleu(counts[list(rows)].sum(0)) for counts in seeds])
        resampled.append([np.mean([total_bleu(counts[sample].sum(0)) for counts in seeds]) for sample in drawn[rows]])
    weights = np.array([term.weight for term in terms])
    value_of = value_of or (lambda scores: np.tensordot(weights, scores, axes=1))
    by_seed = np.array(whole)
    scores = by_seed.mean(axis=1)
    low, high = np.percentile(value_of(np.array(resampled)), [2.5, 97.5])
    return Contrast(
        tuple(scores.tolist()),
        float(value_of(scores)),
        float(low),
        float(high),
        tuple(np.atleast_1d(value_of(by_seed)).tolist()),
    )
