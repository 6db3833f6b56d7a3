"""Weighted sums of BLEU and their intervals, against sacreBLEU itself."""

from __future__ import annotations

import random

import numpy as np
import pytest
import sacrebleu

from mtkit.evaluate.bleu import ScoreSettings, segment_counts, total_bleu
from mtkit.evaluate.contrast import Term, contrast

WORDS = "the a dog cat sees hears old young house garden in under quickly now and".split()  # noqa: SIM905


def text(n_lines: int, seed: int) -> list[str]:
    drawn = random.Random(seed)
    return [" ".join(drawn.choices(WORDS, k=drawn.randint(4, 20))) for _ in range(n_lines)]


def spoiled(lines: list[str], share: float, seed: int) -> list[str]:
    """The lines with about this share of their words replaced."""
    drawn = random.Random(seed)
    return [
        " ".join(drawn.choice(WORDS) if drawn.random() < share else word for word in line.split()) for line in lines
    ]


REFERENCES = text(120, 0)
GOOD, BAD = spoiled(REFERENCES, 0.1, 1), spoiled(REFERENCES, 0.5, 2)


def test_summed_counts_give_sacrebleu_of_any_rows() -> None:
    counts = segment_counts(BAD, REFERENCES, ScoreSettings())
    for rows in ([*range(120)], [3], [5, 5, 9, 40]):
        expected = sacrebleu.corpus_bleu([BAD[row] for row in rows], [[REFERENCES[row] for row in rows]]).score
        assert total_bleu(counts[rows].sum(0)) == pytest.approx(expected, abs=1e-9)


def test_a_contrast_holds_the_scores_of_its_terms() -> None:
    rows = list(range(60))
    found = contrast([Term(1, [GOOD], rows), Term(-1, [BAD], rows)], REFERENCES)
    expected = [sacrebleu.corpus_bleu(lines[:60], [REFERENCES[:60]]).score for lines in (GOOD, BAD)]
    assert found.scores == pytest.approx(expected, abs=1e-9)
    assert found.value == pytest.approx(expected[0] - expected[1], abs=1e-9)
    assert found.low < found.value < found.high
    assert found.low > 0


def test_a_system_differs_from_itself_by_nothing_in_every_resample() -> None:
    rows = range(120)
    found = contrast([Term(1, [GOOD], rows), Term(-1, [list(GOOD)], rows)], REFERENCES)
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_seeds_are_averaged() -> None:
    found = contrast([Term(1, [GOOD, BAD], range(120))], REFERENCES)
    scores = [sacrebleu.corpus_bleu(lines, [REFERENCES]).score for lines in (GOOD, BAD)]
    assert found.value == pytest.approx(np.mean(scores), abs=1e-9)


def test_the_value_of_each_seed_is_that_of_its_own_translations() -> None:
    middle = spoiled(REFERENCES, 0.3, 3)
    found = contrast([Term(2, [GOOD, BAD], range(120)), Term(-1, [BAD, middle], range(120))], REFERENCES)
    good, bad, between = (sacrebleu.corpus_bleu(lines, [REFERENCES]).score for lines in (GOOD, BAD, middle))
    assert found.by_seed == pytest.approx((2 * good - bad, 2 * bad - between), abs=1e-9)
    assert found.value == pytest.approx(np.mean(found.by_seed), abs=1e-9)


def test_another_value_than_a_sum_is_computed_in_every_resample() -> None:
    """A quotient: of a system and itself it is 1 everywhere, however little it scores."""
    terms = [Term(1, [BAD], range(120)), Term(1, [list(BAD)], range(120))]
    found = contrast(terms, REFERENCES, value_of=lambda scores: scores[0] / scores[1])
    assert (found.value, found.low, found.high, found.by_seed) == (1, 1, 1, (1,))
    halves = [Term(1, [BAD], range(60)), Term(1, [BAD], range(60, 120))]
    found = contrast(halves, REFERENCES, value_of=lambda scores: scores[0] / scores[1])
    first, second = (
        sacrebleu.corpus_bleu(BAD[rows], [REFERENCES[rows]]).score for rows in (slice(0, 60), slice(60, 120))
    )
    assert found.value == pytest.approx(first / second)
    assert found.low < found.value < found.high


def test_the_interval_of_one_system_is_about_that_of_sacrebleu() -> None:
    """Two bootstraps of the same thing from other random numbers: half widths agree to a tenth."""
    found = contrast([Term(1, [BAD], range(120))], REFERENCES)
    metric = sacrebleu.BLEU()
    score = metric.corpus_score(BAD, [REFERENCES], n_bootstrap=1000)
    assert (found.high - found.low) / 2 == pytest.approx(score._ci, rel=0.1)
