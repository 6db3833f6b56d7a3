"""UNK becomes the source word that it looks at, or the dictionary's word for it."""

from __future__ import annotations

import gzip

import pytest
import torch

from mtkit.errors import DataError, RequestError
from mtkit.search.translator import Translator
from mtkit.search.unknown import load_dictionary, words_for_unknown
from mtkit.text.tokenizer import EOS_ID, UNK_ID, Tokenizers, learn

LINES = ["the dog sees a man .", "a man sees the dog ."] * 4


@pytest.fixture(scope="module")
def words():
    return learn(LINES, kind="word", vocab_size=16)


def test_the_most_looked_at_word_is_copied_or_translated(words):
    pieces = words.split(["the Zyzzyva sees Fido."])[0]
    assert [piece.strip("▁") for piece in pieces][:4] == ["the", "Zyzzyva", "sees", "Fido"]
    attention = torch.tensor(
        [
            [0.1, 0.6, 0.1, 0.1, 0.05, 0.05],
            [0.9, 0.0, 0.0, 0.1, 0.0, 0.0],
            [0.0, 0.1, 0.1, 0.3, 0.0, 0.5],  # EOS, the last column, is no word
            [0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
        ]
    )
    tokens = [UNK_ID, 5, UNK_ID]
    assert words_for_unknown(tokens, attention, pieces, words, {}) == ["Zyzzyva", "Fido"]
    assert words_for_unknown(tokens, attention, pieces, words, {"Fido": "Bello"}) == ["Zyzzyva", "Bello"]


def test_a_subword_stands_for_its_whole_word():
    pieces = learn(["banana bandana"] * 3, kind="char", vocab_size=10)
    split = pieces.split(["ban bandana"])[0]
    attention = torch.zeros(2, len(split) + 1)
    attention[0, len(split) - 2] = 1.0
    assert words_for_unknown([UNK_ID], attention, split, pieces, {}) == ["bandana"]


@pytest.fixture
def copying(table_model, words):
    """Copies the source token by token, UNK as UNK; its attention is on the column of the sum of its prefix."""

    def probabilities(source, prefix):
        token = source[len(prefix)] if len(prefix) < len(source) else EOS_ID
        return {token: 0.9, EOS_ID: 0.1} if token != EOS_ID else {EOS_ID: 1.0}

    return table_model(probabilities, words.vocab_size)


def test_search_may_choose_unk_only_where_it_is_wanted(copying, words):
    tokenizers = Tokenizers(words, words, True)
    line = "the Zyzzyva sees ."
    (forbidden,) = Translator(copying, tokenizers, beam_size=2).translate([line])
    (kept,) = Translator(copying, tokenizers, beam_size=2, unknown="keep").translate([line])
    (replaced,) = Translator(copying, tokenizers, beam_size=2, unknown="replace").translate([line])
    assert "<unk>" not in forbidden.text
    assert kept.text == "the <unk> sees ."
    prefix = words.encode(["the"])[0]
    looked_at = words.split([line])[0][sum(prefix) % 5 % 4].strip("▁▂")
    assert replaced.text == f"the {looked_at} sees ."
    assert replaced.hypotheses[0].attention is None, "only asked for inside"


def test_a_model_without_attention_is_refused(copying, words, monkeypatch):
    monkeypatch.setattr(type(copying), "has_attention", False)
    tokenizers = Tokenizers(words, words, True)
    with pytest.raises(RequestError, match="^replacing <unk> needs a model with attention; this one has none$"):
        Translator(copying, tokenizers, unknown="replace")
    with pytest.raises(RequestError, match="^a coverage penalty needs a model with attention; this one has none$"):
        Translator(copying, tokenizers, coverage_penalty=0.1)


def test_a_dictionary_is_two_columns(tmp_path):
    path = tmp_path / "words.tsv.gz"
    path.write_bytes(gzip.compress("dog\tHund\n\ncat\tKatze\ndog\tKöter\n".encode()))
    assert load_dictionary(path) == {"dog": "Hund", "cat": "Katze"}


@pytest.mark.parametrize("line", ["dog", "dog\t", "\tHund", "dog\tHund\tHündin"])
def test_another_shape_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "words.tsv"
    path.write_text(f"cat\tKatze\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"words.tsv:2: expected a source word, a tab and a target word"):
        load_dictionary(path)
