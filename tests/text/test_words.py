"""Words and punctuation apart, and together again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtkit.text.tokenizer import UNK_ID, learn
from mtkit.text.words import MARK, join_words, split_words

EXAMPLES = [
    ("A dog.", "A dog ▂."),
    ('He said: "don\'t!"', 'He said ▂: "▂ don\'t ▂! ▂"'),
    ("(dog)", "(▂ dog ▂)"),
    ("3.5%, 1,000", "3.5 ▂% ▂, 1,000"),
    ("l’homme well-known", "l’homme well-known"),
    ("नमस्ते दुनिया।", "नमस्ते दुनिया ▂।"),
    ("a - b", "a - b"),
    ("end...", "end ▂. ▂. ▂."),
    ("", ""),
]


@pytest.mark.parametrize(("line", "expected"), EXAMPLES)
def test_punctuation_stands_apart(line: str, expected: str) -> None:
    assert split_words(line) == expected
    assert join_words(expected) == line


@given(st.text().filter(lambda text: MARK not in text))
def test_a_round_trip_changes_blanks_alone(line: str) -> None:
    assert join_words(split_words(line)) == " ".join(line.split())


def test_a_typed_mark_becomes_a_blank() -> None:
    assert split_words(f"a{MARK}b") == "a b"


def test_a_vocabulary_of_words_knows_a_word_before_any_punctuation() -> None:
    tokenizer = learn(["the dog sees the man .", "dog, man"] * 3, kind="word", vocab_size=20)
    (ids,) = tokenizer.encode(["man, the dog."])
    assert UNK_ID not in ids[:1] + ids[2:4]
    assert tokenizer.decode([ids]) == ["man, the dog."] if UNK_ID not in ids else True
    (pieces,) = tokenizer.split(["Fido, the dog!"])
    assert tokenizer.join([pieces]) == ["Fido, the dog!"]
    assert len(pieces) == len(tokenizer.encode(["Fido, the dog!"])[0]) == 5


def test_the_cap_keeps_the_most_frequent_words() -> None:
    lines = ["often often often", "often sometimes sometimes", "rarely"]
    tokenizer = learn(lines, kind="word", vocab_size=6)  # four special symbols and two words
    assert [UNK_ID in ids for ids in tokenizer.encode(["often", "sometimes", "rarely"])] == [False, False, True]


def test_unknown_words_take_the_strings_given() -> None:
    tokenizer = learn(["the dog"] * 3, kind="word", vocab_size=6)
    ids = tokenizer.encode(["Fido the cat dog"])
    assert tokenizer.decode(ids) == ["<unk> the <unk> dog"]
    assert tokenizer.decode(ids, [["Bello", "Katze"]]) == ["Bello the Katze dog"]
