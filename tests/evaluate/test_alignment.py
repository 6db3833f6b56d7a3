"""Alignments by hand: links, words of pieces, error rates."""

from __future__ import annotations

import numpy as np
import pytest

from mtkit.evaluate.alignment import alignment_error_rate, piece_words, word_links, word_weights


def test_pieces_belong_to_the_word_of_their_first_letter() -> None:
    assert piece_words(["▁The", "▁do", "g", "▁sle", "eps."], ["The", "dog", "sleeps", "."]) == [0, 1, 1, 2, 2]
    assert piece_words(["▁dog", "▁▂."], ["dog", "."]) == [0, 1], "words and punctuation apart have a mark of their own"
    assert piece_words(["▁", "The", "▁dog", "."], ["The", "dog", "."]) == [0, 0, 1, 2]
    assert piece_words(["▁deux\u00a0", ":", "▁un"], ["deux", ":", "un"]) == [0, 1, 2], "a no-break space is no letter"


def test_pieces_of_another_text_are_refused() -> None:
    with pytest.raises(ValueError, match="are not the words"):
        piece_words(["▁a"], ["b"])


def test_a_word_is_linked_to_what_its_pieces_look_at_most() -> None:
    """'Hun' looks at 'the' a little more, 'd' at both pieces of 'dog': together 'dog' wins, 1.2 to 0.7."""
    attention = [
        [0.9, 0.1, 0.0, 0.0],  # der
        [0.5, 0.2, 0.2, 0.1],  # Hun
        [0.2, 0.4, 0.4, 0.0],  # d
        [0.0, 0.0, 0.1, 0.9],  # </s>
    ]
    found = word_links(attention, ["▁the", "▁do", "g"], ["▁der", "▁Hun", "d"], ["the", "dog"], ["der", "Hund"])
    assert found == {(0, 0), (1, 1)}


def test_weights_of_pieces_are_summed_over_source_words_and_averaged_over_target_words() -> None:
    attention = [[0.5, 0.3, 0.2], [0.1, 0.3, 0.4]]
    found = word_weights(attention, ["▁a", "▁b", "c"], ["▁x", "y"], ["a", "bc"], ["xy"])
    assert found == pytest.approx(np.array([[0.3, 0.6]]))


def test_a_word_that_looks_at_no_word_has_no_link() -> None:
    assert word_links([[0.0, 1.0]], ["▁a"], ["▁b"], ["a"], ["b"]) == set()


def test_error_rates_by_hand() -> None:
    """Found 3 links, right are 4: one sure link hit, and one that is only possible: 1 - (1 + 2) / (3 + 2)."""
    found, sure, possible = [{(0, 0), (1, 1), (2, 0)}], [{(0, 0), (3, 3)}], [{(1, 1), (1, 2)}]
    assert alignment_error_rate(found, sure, possible) == pytest.approx(1 - 3 / 5)
    assert alignment_error_rate(sure, sure) == 0
    assert alignment_error_rate([{(5, 5)}], sure) == 1
    assert alignment_error_rate([set()], [set()]) == 0


def test_sentences_are_counted_together() -> None:
    """2 of 2 and 0 of 2 links: 1 - (2 + 2) / (4 + 4)."""
    found = [{(0, 0), (1, 1)}, {(0, 1), (1, 0)}]
    gold = [{(0, 0), (1, 1)}, {(0, 0), (1, 1)}]
    assert alignment_error_rate(found, gold) == pytest.approx(0.5)
