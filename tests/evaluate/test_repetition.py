"""Repetition by hand."""

from __future__ import annotations

import pytest

from mtkit.evaluate.repetition import repetition_rate


@pytest.mark.parametrize(
    ("line", "n_repeated"),
    [
        ("the dog sees the cat", 0),
        ("the the dog", 1),
        ("the the the", 2),
        ("the dog the dog", 1),
        ("a b c d a b c d", 1),
        ("a b c d e a b c d e", 0),
        ("alte alte alte Gans", 2),
    ],
)
def test_a_word_counts_if_it_ends_a_phrase_for_the_second_time(line: str, n_repeated: int) -> None:
    assert repetition_rate([line]) == pytest.approx(100 * n_repeated / len(line.split()))


def test_lines_are_counted_together_and_nothing_is_no_repetition() -> None:
    assert repetition_rate(["a a", "b c d", ""]) == pytest.approx(100 / 5)
    assert repetition_rate([]) == repetition_rate([""]) == 0


def test_a_language_without_blanks_is_counted_by_its_characters() -> None:
    """Two of the three in 我我我; for Chinese BLEU counts characters."""
    assert repetition_rate(["我我我", "喜欢。"]) == 0
    for language in ("zh", "zh-TW"):
        assert repetition_rate(["我我我", "喜欢。"], language) == pytest.approx(100 * 2 / 6)
