"""Words and punctuation apart, and together again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtkit.text.tokenizer import UNK_ID, Tokenizer, learn
from mtkit.text.words import MARK, join_words, split_words


@pytest.fixture(scope="module")
def identity() -> Tokenizer:
    """Words without normalisation: what comes back must be what was typed."""
    return learn(["a b's, (s) 1.1!", "字 - é"] * 3, kind="word", vocab_size=40, normalization="identity")


EXAMPLES = [
    ("A dog.", "A dog ▂."),
    ('He said: "don\'t!"', 'He said ▂: "▂ don\'t ▂! ▂"'),
    ("(dog)", "(▂ dog ▂)"),
    ("3.5%, 1,000", "3.5 ▂% ▂, 1,000"),
    ("l’homme well-known", "l’homme well-known"),
    ("नमस्ते दुनिया।", "नमस्ते दुनिया ▂।"),
    ("a - b", "a - b"),
    ("end...", "end ▂. ▂. ▂."),
    ("keep ☃\ufe0f!", "keep ☃\ufe0f ▂!"),
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
    tokenizer = learn(["the dog sees the man.", "dog, man"] * 3, kind="word", vocab_size=20)
    (ids,) = tokenizer.encode(["man, the dog."])
    assert UNK_ID not in ids
    assert tokenizer.decode([ids]) == ["man, the dog."]
    (pieces,) = tokenizer.split(["Fido, the dog!"])
    assert tokenizer.join([pieces]) == ["Fido, the dog!"]
    assert len(pieces) == len(tokenizer.encode(["Fido, the dog!"])[0]) == 5


def test_capitals_stay() -> None:
    tokenizer = learn(["The man sees the dog."] * 3, kind="word", vocab_size=20)
    assert [tokenizer.pieces(ids) for ids in tokenizer.encode(["The dog sees the man."])] == [
        ["▁The", "▁dog", "▁sees", "▁the", "▁man", "▁▂."]
    ]


def test_punctuation_that_normalisation_makes_is_cut_as_if_typed() -> None:
    """NFKC: the ellipsis U+2026 is three full stops, the half U+00BD is 1, U+2044 and 2."""
    tokenizer = learn(["so… the end…", "or 1⁄2 a day"] * 3, kind="word", vocab_size=30)
    typed, composed = tokenizer.encode(["the end... 1⁄2", "the end… ½"])
    assert typed == composed
    assert UNK_ID not in typed
    assert tokenizer.decode([typed]) == ["the end... 1⁄2"]


ODD = "ab .,'’-\"(!1é\u0301\u093e☃\ufe0f字\u200c\u200d\u3000\t_<>s"


@settings(max_examples=300)
@given(line=st.text(alphabet=ODD, max_size=12) | st.text(max_size=12).filter(lambda text: not set(text) & set("▁▂")))
def test_pieces_give_the_line_back_and_are_as_many_as_ids(identity: Tokenizer, line: str) -> None:
    (pieces,), (ids,) = identity.split([line]), identity.encode([line])
    assert identity.join([pieces]) == [" ".join(line.split())]
    assert ids == identity.ids(pieces)
    assert identity.decode([ids], [[piece[1:] for piece, i in zip(pieces, ids, strict=True) if i == UNK_ID]]) == [
        " ".join(line.split())
    ], "unknown words in their places"


def test_the_cap_keeps_the_most_frequent_words() -> None:
    lines = ["often often often", "often sometimes sometimes", "rarely"]
    tokenizer = learn(lines, kind="word", vocab_size=6)  # four special symbols and two words
    assert [UNK_ID in ids for ids in tokenizer.encode(["often", "sometimes", "rarely"])] == [False, False, True]


def test_unknown_words_take_the_strings_given() -> None:
    tokenizer = learn(["the dog"] * 3, kind="word", vocab_size=6)
    ids = tokenizer.encode(["Fido the cat dog"])
    assert tokenizer.decode(ids) == ["<unk> the <unk> dog"]
    assert tokenizer.decode(ids, [["Bello", "Katze"]]) == ["Bello the Katze dog"]
