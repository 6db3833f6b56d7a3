"""Which sentences count as short and as long."""

from __future__ import annotations

from mtkit.evaluate.length import length_groups


def lines(*counts: tuple[int, int]) -> list[str]:
    return [" ".join(["w"] * n_words) for n_words, n_lines in counts for _ in range(n_lines)]


def test_the_outermost_groups_with_enough_segments_are_compared() -> None:
    groups = length_groups(lines((5, 50), (15, 80), (35, 50), (45, 49)))
    assert (groups.short_words, groups.long_words, groups.shortage) == ("1-9", "30-39", "")
    assert list(groups.short_rows) == list(range(50))
    assert list(groups.long_rows) == list(range(130, 180))


def test_captions_are_too_short_for_a_claim_about_length() -> None:
    groups = length_groups(lines((8, 400), (13, 500), (25, 98), (31, 2)))
    assert groups.shortage == "of 1000 sentences 2 have 30 words or more, too few for two groups"


def test_long_sentences_alone_make_no_comparison() -> None:
    assert length_groups(lines((35, 100), (5, 49))).shortage


def test_too_few_segments_are_said() -> None:
    assert length_groups(lines((5, 10))).shortage == "no group of lengths has 50 segments"
