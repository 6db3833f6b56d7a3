from __future__ import annotations

import math

import pytest
import torch

from mtkit.data.batch import make_source
from mtkit.errors import MtkitError
from mtkit.search import LengthPenalty, greedy_search

PAD, UNK, BOS, EOS, A, B = range(6)


def search(model, sources=((A,),), limits=(10,), **options):
    src, src_pad_mask = make_source(sources)
    return greedy_search(model, model.encode(src, src_pad_mask), torch.tensor(limits), **options)


def test_takes_the_best_token_and_stops_at_eos(table_model):
    """CH-120"""
    table = {(): {A: 0.6, B: 0.3, EOS: 0.1}, (A,): {EOS: 0.5, A: 0.3, B: 0.2}}
    (best,) = search(table_model(lambda source, prefix: table[prefix], 6), length_penalty=LengthPenalty(1.0))
    assert best.tokens == [A]
    assert best.log_prob == pytest.approx(math.log(0.6 * 0.5))
    assert best.score == pytest.approx(math.log(0.6 * 0.5) / 2)
    assert best.attention is None


def test_forbidden_tokens_are_never_taken_but_keep_their_probability(table_model):
    table = {(): {PAD: 0.3, BOS: 0.3, UNK: 0.2, A: 0.15, EOS: 0.05}, (A,): {UNK: 0.6, EOS: 0.4}}
    model = table_model(lambda source, prefix: table[prefix], 6)
    (best,) = search(model)
    assert best.tokens == [A]
    assert best.log_prob == pytest.approx(math.log(0.15 * 0.4))


def test_unknown_is_taken_when_it_is_allowed(table_model):
    table = {(): {UNK: 0.6, A: 0.4}, (UNK,): {EOS: 1.0}}
    (best,) = search(table_model(lambda source, prefix: table[prefix], 6), allow_unknown=True)
    assert best.tokens == [UNK]
    assert best.log_prob == pytest.approx(math.log(0.6))


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_longest_length_ends_a_translation_with_the_models_own_eos_probability(table_model, limit):
    """CH-120"""
    (best,) = search(table_model(lambda source, prefix: {A: 0.9, EOS: 0.1}, 6), limits=(limit,))
    assert best.tokens == [A] * limit
    assert best.log_prob == pytest.approx(limit * math.log(0.9) + math.log(0.1))


def test_finished_sentences_leave_the_batch(table_model):
    def echo(source, prefix):
        return {source[len(prefix)] if len(prefix) < len(source) else EOS: 1.0}

    sources = [(A,), (A, B, A, B), (B, B)]
    model = table_model(echo, 6)
    found = search(model, sources, (9, 9, 9))
    assert [tuple(each.tokens) for each in found] == sources
    assert model.seen == [(3, 3), (3, 3), (2, 2), (1, 1), (1, 1)]


def test_attention_has_a_row_for_each_token_and_eos_and_no_padding_columns(table_model):
    def two_tokens(source, prefix):
        return {A if len(prefix) < 2 else EOS: 1.0}

    # The table looks at column 0, A, 2 A = 0, 4, 8 modulo the source length, 3 and 5 with EOS.
    short, long = search(table_model(two_tokens, 6), [(A, B), (A, B, A, B)], (9, 9), need_attention=True)
    assert short.attention.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert long.attention.tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 1, 0]]


def test_no_sentence_gives_no_translation(table_model):
    nothing = torch.zeros(0, 1, dtype=torch.int64)
    model = table_model(lambda source, prefix: {}, 6)
    assert greedy_search(model, model.encode(nothing, nothing.bool()), nothing[:, 0]) == []


@pytest.mark.parametrize("broken", [math.nan, 0.0])
def test_a_model_without_finite_numbers_is_an_error(table_model, broken):
    with pytest.raises(MtkitError, match="the model gives a log-probability of"):
        search(table_model(lambda source, prefix: {token: broken for token in range(6)}, 6))
