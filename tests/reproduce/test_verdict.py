"""Verdicts follow from numbers by their rules."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
import sacrebleu

from mtkit.errors import RequestError
from mtkit.evaluate.bleu import MIN_SEGMENTS
from mtkit.evaluate.length import length_groups
from mtkit.reproduce.verdict import (
    SEED_MARGIN,
    Sample,
    beats,
    compare,
    falls_with_length,
    gains_more,
    interval_above_zero,
    loses_less_than,
    stays_flat,
    together,
)

WORDS = "der die Hund Katze sieht hört alt jung Haus Garten in unter schnell jetzt und".split()  # noqa: SIM905


def sentence(n_words: int, drawn: random.Random) -> str:
    return " ".join(drawn.choices(WORDS, k=n_words))


DRAWN = random.Random(7)
# 60 short and 60 long sentences; the source has the same number of words.
REFERENCES = [sentence(length, DRAWN) for length in [7] * 60 + [35] * 60]
GROUPS = length_groups(REFERENCES)


def sample(label: str, short: float, long: float, *seeds: int) -> Sample:
    """A system that gets this share of words wrong in short and in long sentences."""

    def hypotheses(seed: int) -> list[str]:
        drawn = random.Random(seed)
        return [
            " ".join(
                drawn.choice(WORDS) if drawn.random() < (short if row < 60 else long) else word for word in line.split()
            )
            for row, line in enumerate(REFERENCES)
        ]

    return Sample(label, [hypotheses(seed) for seed in seeds or (1,)], REFERENCES, "de")


GOOD, MIDDLE, BAD = sample("good", 0.1, 0.1), sample("middle", 0.3, 0.3), sample("bad", 0.6, 0.6)


def test_a_clear_difference_is_shown_and_its_reverse_contradicted() -> None:
    assert beats("CH-30", "good beats bad", (GOOD, BAD)).outcome == "shown"
    verdict = beats("CH-30", "bad beats good", (BAD, GOOD))
    assert verdict.outcome == "contradicted"
    assert "bad" in verdict.reason and "p 0.00" in verdict.reason


def test_a_system_does_not_beat_its_equal() -> None:
    assert beats("CH-30", "equals", (GOOD, GOOD._replace(label="twin"))).outcome == "not shown"


def test_a_system_that_diverged_is_named() -> None:
    good = sample("good", 0.9, 0.9)
    gone = sample("gone", 0.9, 0.9, 2)._replace(has_diverged=True)
    assert beats("CH-1", "", (good, gone)).reason.endswith("; gone has diverged")
    assert "diverged" not in beats("CH-1", "", (good, sample("bad", 0.1, 0.1))).reason


def test_seeds_that_disagree_show_nothing() -> None:
    """Better with one seed, worse with the other: both differences are large, their directions are not one."""
    first = Sample("first", [GOOD.hypotheses[0], BAD.hypotheses[0]], REFERENCES, "de")
    second = Sample("second", [BAD.hypotheses[0], GOOD.hypotheses[0]], REFERENCES, "de")
    assert beats("CH-30", "mixed", (first, second)).outcome == "not shown"


def test_a_claim_of_several_comparisons_needs_all() -> None:
    assert beats("CH-30", "both", (GOOD, MIDDLE), (MIDDLE, BAD)).outcome == "shown"
    assert beats("CH-30", "one is the wrong way", (GOOD, MIDDLE), (BAD, MIDDLE)).outcome == "contradicted"
    assert beats("CH-30", "one is open", (GOOD, MIDDLE), (GOOD, GOOD)).outcome == "not shown"


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (["shown", "shown"], "shown"),
        (["shown", "not shown"], "not shown"),
        (["not shown", "contradicted"], "contradicted"),
        (["shown", "cannot be tested at this scale"], "cannot be tested at this scale"),
    ],
)
def test_one_outcome_for_several(outcomes: list[str], expected: str) -> None:
    assert together(outcomes) == expected


def test_a_training_that_the_clock_cut_decides_nothing_against_one_that_it_did_not() -> None:
    cut = BAD._replace(cut_after=(4.0,))
    whole = GOOD._replace(cut_after=(None,))
    for verdict in (
        beats("CH-80", "beats", (whole, cut)),
        gains_more("CH-128", "gains", (whole, cut), (MIDDLE, BAD)),
        loses_less_than("CH-86", "loses", whole, [cut], 1.0),
        stays_flat("CH-32", "flat", whole, sample("steep", 0.1, 0.7)._replace(cut_after=(4.0,)), GROUPS),
        interval_above_zero("CH-12", "above", np.ones(MIN_SEGMENTS), "ones", whole, cut),
    ):
        assert verdict.outcome == "cannot be tested at this scale"
        assert "not all alike: " in verdict.reason and "after 4 minutes" in verdict.reason
    alike = beats("CH-30", "one budget for both", (GOOD._replace(cut_after=(4.0,)), cut))
    assert alike.outcome == "shown", "both had as much time"


def test_a_few_sentences_decide_nothing() -> None:
    def few(whole: Sample) -> Sample:
        return whole._replace(
            hypotheses=[lines[: MIN_SEGMENTS - 1] for lines in whole.hypotheses],
            references=REFERENCES[: MIN_SEGMENTS - 1],
        )

    good, middle, bad = few(GOOD), few(MIDDLE), few(BAD)
    for verdict in (
        beats("CH-30", "beats", (good, bad)),
        gains_more("CH-128", "gains", (good, bad), (middle, bad)),
        loses_less_than("CH-86", "loses", good, [bad], 1.0),
        interval_above_zero("CH-35", "above", np.ones((2, MIN_SEGMENTS - 1)), "ones"),
        interval_above_zero("CH-35", "above", np.array([]), "nothing"),
    ):
        assert verdict.outcome == "cannot be tested at this scale"
        assert "too few" in verdict.reason
    assert interval_above_zero("CH-35", "above", np.ones(MIN_SEGMENTS), "ones").outcome == "shown"


def test_the_numbers_of_a_verdict_are_those_of_its_reason() -> None:
    verdict = beats("CH-30", "both", (GOOD, MIDDLE), (MIDDLE, BAD))
    assert f"good {verdict.numbers['first BLEU']:.2f} against" in verdict.reason
    assert (
        f"bad {verdict.numbers['second BLEU (2)']:.2f} BLEU (one seed), p {verdict.numbers['p (2)']:.3f}"
        in verdict.reason
    )
    gain = gains_more("CH-128", "gains", (GOOD, BAD), (MIDDLE, BAD))
    assert gain.numbers["low"] < gain.numbers["difference"] < gain.numbers["high"]


def test_a_fall_with_length_is_seen() -> None:
    assert falls_with_length("CH-18", "falls", sample("steep", 0.1, 0.5), GROUPS).outcome == "shown"
    assert falls_with_length("CH-18", "falls", sample("rising", 0.5, 0.1), GROUPS).outcome == "contradicted"


def test_flat_beside_steep_is_shown_only_if_it_keeps_its_bleu() -> None:
    steep = sample("steep", 0.1, 0.7)
    assert stays_flat("CH-32", "flat", GOOD, steep, GROUPS).outcome == "shown"
    falling = stays_flat("CH-32", "flat", sample("falling", 0.1, 0.4), steep, GROUPS)
    assert falling.outcome == "not shown", "it falls less than the other, but it falls"
    assert stays_flat("CH-32", "flat", steep, GOOD, GROUPS).outcome == "contradicted"


def test_what_falls_is_the_share_that_is_kept() -> None:
    """A fixed vector that has learned little can lose little: it keeps less of it all the same."""
    weak = sample("weak", 0.6, 0.95)
    strong = sample("strong", 0.02, 0.12)
    scores = [
        sacrebleu.corpus_bleu(each.hypotheses[0][rows], [REFERENCES[rows]]).score
        for each in (weak, strong)
        for rows in (slice(0, 60), slice(60, 120))
    ]
    assert scores[0] - scores[1] < scores[2] - scores[3], "it loses fewer points than the other"
    verdict = stays_flat("CH-32", "flat", strong, weak, GROUPS)
    assert verdict.numbers["kept"] == pytest.approx(scores[3] / scores[2])
    assert verdict.numbers["difference"] == pytest.approx(scores[3] / scores[2] - scores[1] / scores[0])
    assert verdict.outcome == "shown"
    assert stays_flat("CH-32", "flat", weak, strong, GROUPS).outcome == "contradicted"


def test_seeds_that_disagree_show_nothing_whatever_their_mean() -> None:
    """Of two seeds one gains much and the other loses: the mean is far above 0."""
    split = Sample("split", [GOOD.hypotheses[0], BAD.hypotheses[0]], REFERENCES, "de")
    middle = sample("middle", 0.45, 0.45, 1, 2)
    good = sample("good", 0.1, 0.1, 1, 2)
    gain = gains_more("CH-13", "more", (split, middle), (middle, middle))
    assert gain.numbers["low"] > 0 and gain.outcome == "not shown"
    assert gains_more("CH-13", "more", (good, middle), (middle, middle)).outcome == "shown"
    loss = loses_less_than("CH-86", "less", middle, [split], 1.0)
    assert loss.numbers["high"] < 1 and loss.outcome == "not shown"
    steep, rising = sample("steep", 0.1, 0.7).hypotheses[0], sample("rising", 0.3, 0.2).hypotheses[0]
    falling = Sample("falling", [steep, rising], REFERENCES, "de")
    fall = falls_with_length("CH-18", "falls", falling, GROUPS)
    assert fall.numbers["low"] > 0 and fall.outcome == "not shown"
    values = np.array([[3.0] * MIN_SEGMENTS, [-1.0] * MIN_SEGMENTS])
    mean = interval_above_zero("CH-12", "above", values, "of two")
    assert (mean.numbers["difference"], mean.outcome) == (1.0, "not shown")
    assert interval_above_zero("CH-12", "above", values + 1.5, "of two").outcome == "shown"


def test_short_text_cannot_test_a_claim_about_length() -> None:
    short = length_groups(["one two three"] * 100)
    for verdict in (
        falls_with_length("CH-18", "falls", GOOD, short),
        stays_flat("CH-32", "flat", GOOD, BAD, short),
    ):
        assert verdict.outcome == "cannot be tested at this scale"
        assert verdict.reason.startswith("of 100 sentences 0 have 30 words")


def test_a_larger_gain_is_seen() -> None:
    assert gains_more("CH-13", "more", (GOOD, BAD), (GOOD, MIDDLE)).outcome == "shown"
    assert gains_more("CH-13", "more", (GOOD, MIDDLE), (GOOD, BAD)).outcome == "contradicted"
    assert gains_more("CH-13", "more", (GOOD, BAD), (GOOD, BAD)).outcome == "not shown"


def nearly(label: str, better: Sample, n_better: int) -> Sample:
    """BAD, but for the first sentences, which are those of `better`: better by little and never worse."""
    lines = [*better.hypotheses[0][:n_better], *BAD.hypotheses[0][n_better:]]
    return Sample(label, [lines], REFERENCES, "de")


def test_with_one_seed_a_small_difference_shows_nothing_unless_the_model_is_the_same() -> None:
    """Two trainings alike differ by as much; two searches of one model do not."""
    slightly = nearly("slightly", MIDDLE, 7)
    found = compare(slightly, BAD, same_model=True)
    ours, theirs = (float(number) for number in re.findall(r"(\d+\.\d+)(?: against| BLEU)", found.text))
    gain = ours - theirs
    assert 0 < gain < SEED_MARGIN and found.p_value < 0.05
    assert found.outcome == "shown"
    assert compare(slightly, BAD).outcome == "not shown"
    assert "(one seed)" in found.text
    twice = [each._replace(hypotheses=[*each.hypotheses] * 2) for each in (slightly, BAD)]
    assert compare(*twice).outcome == "shown", "both seeds agree"


def test_the_best_of_many_needs_a_smaller_p() -> None:
    """Bonferroni: eleven times p."""
    once, chosen = compare(GOOD, MIDDLE), compare(GOOD, MIDDLE, n_tried=11)
    assert chosen.p_value == pytest.approx(11 * once.p_value)
    verdict = beats("CH-47", "best", (GOOD, MIDDLE), n_tried=11)
    assert verdict.rule.endswith("the second is the best of 11, and p is multiplied by as many")


@pytest.mark.parametrize(
    "stranger",
    [
        BAD._replace(label="french", trg_lang="fr"),
        BAD._replace(label="other", references=[*REFERENCES[1:], REFERENCES[0]]),
    ],
    ids=lambda stranger: stranger.label,
)
def test_unlike_test_sets_are_never_compared(stranger: Sample) -> None:
    for judge in (
        lambda: compare(GOOD, stranger),
        lambda: stays_flat("CH-32", "flat", GOOD, stranger, GROUPS),
        lambda: gains_more("CH-13", "more", (GOOD, BAD), (GOOD, stranger)),
        lambda: loses_less_than("CH-86", "less", GOOD, [stranger], 1.0),
    ):
        with pytest.raises(RequestError, match="translate other test sets"):
            judge()


def test_flat_beside_a_system_that_does_not_fall_shows_nothing() -> None:
    """The one rises from short to long and the other stands still: neither is what the claim speaks of."""
    assert stays_flat("CH-32", "flat", sample("rising", 0.5, 0.1), GOOD, GROUPS).outcome == "not shown"


def test_what_diverged_translates_nothing() -> None:
    assert Sample("lost", [[""] * len(REFERENCES)], REFERENCES, "de").is_empty
    assert not GOOD.is_empty
