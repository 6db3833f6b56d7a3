from __future__ import annotations

import math
import random
import string
from collections import Counter

import pytest
import torch

from mtkit import models
from mtkit.errors import RequestError
from mtkit.search import Hypothesis
from mtkit.search.translator import Translator
from mtkit.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizers, learn

LETTERS = string.ascii_lowercase
VOCAB = 31  # four special tokens, the letters and the blank


@pytest.fixture(scope="module")
def tokenizers():
    """One token for each letter, and one for the blank."""
    letters = learn([f"{LETTERS} {LETTERS[::-1]}"], kind="char", vocab_size=VOCAB)
    return Tokenizers(letters, letters, shared=True)


def echo(source, prefix):
    """Copies the source; any other end or token has a little probability, so that a beam has a choice."""
    token = source[len(prefix)] if len(prefix) < len(source) else EOS_ID
    return {**{other: 0.001 for other in range(VOCAB)}, token: 0.97}


@pytest.fixture
def echo_model(table_model):
    return table_model(echo, VOCAB)


def sentences(n):
    draw = random.Random(5)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(1, 4))) for _ in range(30)]
    return [" ".join(draw.choices(words, k=draw.randint(0, 5))) for _ in range(n)]


@pytest.mark.parametrize(("beam_size", "batch_tokens"), [(1, 1), (1, 60), (1, 100_000), (3, 1), (3, 300)])
def test_lines_keep_their_order_whatever_the_batches(echo_model, tokenizers, beam_size, batch_tokens):
    lines = sentences(40)
    translator = Translator(echo_model, tokenizers, beam_size=beam_size, batch_tokens=batch_tokens)
    found = translator.translate(lines)
    assert [each.text for each in found] == lines
    assert [each.source for each in found] == lines
    alone = [translator.translate([line])[0] for line in lines]
    assert [each.text for each in alone] == lines
    assert [each.hypotheses[0].score for each in alone] == pytest.approx([each.hypotheses[0].score for each in found])


def test_batches_hold_the_budget_and_are_sorted_by_length(echo_model, tokenizers):
    lines = ["a" * n for n in (3, 9, 1, 5, 5, 2, 30)]
    Translator(echo_model, tokenizers, beam_size=2, batch_tokens=44).translate(lines)
    # One more token for the leading blank; a row of the batch counts (letters + blank + EOS) x 2.
    # 1 x 32 x 2 = 64 is too much, but cannot be less; 2 x 11 x 2 = 44 fits; 3 x 7 x 2 = 42 fits, four would not.
    lengths = [[len(source) - 1 for source in batch] for batch in echo_model.read]
    assert lengths == [[30], [9, 5], [5, 3, 2], [1]]


def test_the_same_line_is_translated_as_often_as_it_comes(echo_model, tokenizers):
    found = Translator(echo_model, tokenizers, beam_size=2).translate(["same line"] * 7 + ["same line  "])
    assert [each.text for each in found] == ["same line"] * 8
    assert len({each.hypotheses[0].score for each in found[:7]}) == 1


@pytest.mark.parametrize("line", ["", " ", "\t", "\u3000 \u2028", "\x0c", "\u200b"])
def test_a_line_without_text_stays_empty_and_away_from_the_model(echo_model, tokenizers, line):
    translator = Translator(echo_model, tokenizers, beam_size=2, n_best=2, need_attention=True)
    first, empty, last = translator.translate(["ab", line, "c"])
    assert (first.text, last.text) == ("ab", "c")
    assert empty.hypotheses == [("", [], 0.0, 0.0, [], None)]
    assert sum(len(batch) for batch in echo_model.read) == 2
    assert all(source for batch in echo_model.read for source in batch)


def test_nothing_but_empty_lines_and_no_lines_at_all(echo_model, tokenizers):
    translator = Translator(echo_model, tokenizers)
    assert [each.text for each in translator.translate(["", "", ""])] == ["", "", ""]
    assert translator.translate([]) == []
    assert echo_model.read == []


def test_scores_are_never_above_0(echo_model, tokenizers):
    for beam_size in (1, 2):
        found = Translator(echo_model, tokenizers, beam_size=beam_size).translate(["abc", "", "a b"])
        assert all(
            hypothesis.score <= 0 and hypothesis.log_prob <= 0 for each in found for hypothesis in each.hypotheses
        )


def test_a_long_line_is_cut_with_a_warning_that_names_it(echo_model, tokenizers):
    warnings = []
    translator = Translator(echo_model, tokenizers, beam_size=1, max_source_tokens=6, warn=warnings.append)
    blocks = [["a"] * 3, ["b", "c" * 50, "de"]]
    texts = [each.text for found in translator.translate_blocks(blocks) for each in found]
    assert texts == ["a", "a", "a", "b", "ccccc", "de"]  # the leading blank is a token, too
    assert warnings == ["line 5: 51 tokens, cut to the first 6"]


@pytest.mark.parametrize(
    ("ratio", "extra", "n_src_tokens", "expected"),
    [(2.0, 20, 7, 34), (1.5, 1, 3, 6), (1.1, 0, 10, 11), (0.0, 4, 9, 4), (0.1, 0, 1, 1)],
)
def test_longest_length_is_ratio_times_source_plus_extra(echo_model, tokenizers, ratio, extra, n_src_tokens, expected):
    translator = Translator(echo_model, tokenizers, max_length_ratio=ratio, max_length_extra=extra)
    assert translator.max_length(n_src_tokens) == expected


@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_endless_model_stops_at_the_longest_length(table_model, tokenizers, beam_size):
    """CH-120"""
    letter = tokenizers.src.ids(["a"])[0]
    model = table_model(lambda source, prefix: {letter: 0.99, EOS_ID: 0.01}, VOCAB)
    translator = Translator(
        model, tokenizers, beam_size=beam_size, length_penalty=3.0, max_length_ratio=0.5, max_length_extra=2
    )
    short, long = translator.translate(["b", "bcdefghij"])  # 2 and 10 tokens with the leading blank
    assert (short.text, long.text) == ("aaa", "aaaaaaa")
    assert short.hypotheses[0].log_prob == pytest.approx(3 * math.log(0.99) + math.log(0.01), abs=1e-5)


def test_special_tokens_are_never_printed(table_model, tokenizers):
    letter = tokenizers.src.ids(["a"])[0]

    def tempting(source, prefix):
        return {PAD_ID: 0.3, BOS_ID: 0.3, UNK_ID: 0.3, letter: 0.06, EOS_ID: 0.04}

    translator = Translator(table_model(tempting, VOCAB), tokenizers, beam_size=3, n_best=3, max_length_extra=1)
    texts = {each.text for found in translator.translate(["b", "cd"]) for each in found.hypotheses}
    assert all(set(text) <= {"a"} for text in texts)


def test_a_byte_token_for_a_line_end_does_not_end_the_line(table_model):
    tokenizer = learn(["the cat", "a cat"], kind="bpe", vocab_size=280, byte_fallback=True)
    emitted = tokenizer.ids(["<0x0A>", "a", "<0x0D>"])
    assert UNK_ID not in emitted
    model = table_model(
        lambda source, prefix: {emitted[len(prefix)] if len(prefix) < 3 else EOS_ID: 1.0}, tokenizer.vocab_size
    )
    (found,) = Translator(model, Tokenizers(tokenizer, tokenizer, shared=True)).translate(["cat"])
    assert "a" in found.text
    assert not set(found.text) & {"\n", "\r"}


def test_n_best_are_sorted_distinct_and_carry_their_tokens(echo_model, tokenizers):
    (found,) = Translator(echo_model, tokenizers, beam_size=4, n_best=4).translate(["ab"])
    assert found.source_tokens == ["\u2581", "a", "b"]
    assert found.hypotheses[0].text == found.text == "ab"
    assert found.hypotheses[0].tokens == ["\u2581", "a", "b"]
    assert [each.score for each in found.hypotheses] == sorted((each.score for each in found.hypotheses), reverse=True)
    assert len({tuple(each.tokens) for each in found.hypotheses}) == 4


def test_score_is_the_log_probability_over_the_penalty_that_was_asked_for(echo_model, tokenizers):
    options = {"beam_size": 1, "length_penalty": 2.0}
    power = Translator(echo_model, tokenizers, length_normalization="power", **options).translate(["ab"])[0]
    gnmt = Translator(echo_model, tokenizers, length_normalization="gnmt", **options).translate(["ab"])[0]
    log_prob = 4 * math.log(0.97)  # blank, a, b, EOS; the 30 others have 0.03 between them
    assert power.hypotheses[0].log_prob == pytest.approx(log_prob, abs=1e-5)
    assert power.hypotheses[0].score == pytest.approx(log_prob / 16, abs=1e-5)
    assert gnmt.hypotheses[0].score == pytest.approx(log_prob / 2.25, abs=1e-5)


def test_alignment_is_the_most_attended_source_token_and_never_eos(echo_model, tokenizers, monkeypatch):
    monkeypatch.setattr(
        "mtkit.search.translator.beam_search",
        lambda *args, **options: [
            [
                Hypothesis(
                    tokenizers.trg.ids(["a", "b", "c"]),
                    -1.0,
                    -1.0,
                    torch.tensor([[0.1, 0.6, 0.3], [0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.0, 0.0, 1.0]]),
                )
            ]
        ],
    )
    (found,) = Translator(echo_model, tokenizers, need_attention=True).translate(["z"])  # two tokens and EOS
    assert found.hypotheses[0].alignment == [(1, 0), (0, 1), (1, 2)]


def test_alignment_is_none_unless_asked_for(echo_model, tokenizers):
    (found,) = Translator(echo_model, tokenizers).translate(["ab"])
    assert (found.hypotheses[0].alignment, found.hypotheses[0].attention) == (None, None)


def test_alignment_comes_from_the_models_attention(echo_model, tokenizers):
    translator = Translator(echo_model, tokenizers, beam_size=3, need_attention=True)
    for found in translator.translate(["abc", "de fgh", "i"]):
        ids = tokenizers.trg.ids(found.hypotheses[0].tokens)
        columns = [sum(ids[:step]) % (len(found.source_tokens) + 1) for step in range(len(ids))]
        # Where the table looks at EOS alone, all source tokens share the attention 0, and the first is taken.
        expected = [(0 if column == len(found.source_tokens) else column, trg) for trg, column in enumerate(columns)]
        assert found.hypotheses[0].alignment == expected
        assert found.hypotheses[0].attention.shape == (len(ids) + 1, len(found.source_tokens) + 1)


def test_alignments_of_a_model_without_attention_are_refused(echo_model, tokenizers, monkeypatch):
    monkeypatch.setattr(type(echo_model), "has_attention", False)
    with pytest.raises(RequestError, match="^alignments need a model with attention; this one has none$"):
        Translator(echo_model, tokenizers, need_attention=True)


def test_n_best_larger_than_the_beam_is_refused(echo_model, tokenizers):
    with pytest.raises(RequestError, match="^n-best 10 needs a beam of at least 10, got 5$"):
        Translator(echo_model, tokenizers, beam_size=5, n_best=10)


@pytest.mark.parametrize("ratio", [math.inf, math.nan])
def test_a_length_ratio_without_a_length_is_refused(echo_model, tokenizers, ratio):
    with pytest.raises(RequestError, match="max_length_ratio: expected a finite number"):
        Translator(echo_model, tokenizers, max_length_ratio=ratio)


def test_the_model_translates_in_eval_mode_and_gets_its_mode_back(echo_model, tokenizers):
    modes = []
    plain_encode = echo_model.encode

    def encode(src, src_pad_mask):
        modes.append(echo_model.training)
        return plain_encode(src, src_pad_mask)

    echo_model.encode = encode
    translator = Translator(echo_model, tokenizers)
    for training in (True, False):
        echo_model.train(training)
        translator.translate(["ab"])
        assert echo_model.training is training
    assert modes == [False, False]


def test_normalised_weights_are_computed_once_for_a_batch(tokenizers):
    """ConvS2S asks for each of them at every step."""
    sizes = (tokenizers.src.vocab_size, tokenizers.trg.vocab_size)
    model = models.build({"type": "convs2s", "preset": "tiny"}, *sizes, PAD_ID).eval()
    computed = Counter()
    norms = [module for module in model.modules() if type(module).__name__ == "_WeightNorm"]
    for norm in norms:
        norm.register_forward_hook(lambda module, *_: computed.update([module]))
    translator = Translator(model, tokenizers, beam_size=2, max_length_ratio=0.0, max_length_extra=6)
    translator.translate(["a b c", "b c"])
    assert norms and set(computed.values()) == {1}


@pytest.mark.parametrize(
    ("options", "dtype"),
    [({}, torch.float32), ({"precision": "fp32"}, torch.float32), ({"precision": "bf16"}, torch.bfloat16)],
)
def test_products_are_in_the_precision_asked_for(tokenizers, options, dtype):
    sizes = (tokenizers.src.vocab_size, tokenizers.trg.vocab_size)
    model = models.build({"type": "transformer", "preset": "tiny"}, *sizes, PAD_ID).eval()
    seen = set()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda _, __, output: seen.add(output.dtype))
    translator = Translator(model, tokenizers, max_length_ratio=0.0, max_length_extra=3, **options)
    translator.translate(["abc"])
    assert seen == {dtype}
    seen.clear()
    translator.score(["abc"], ["cba"])
    assert seen == {dtype}


def test_a_block_is_translated_before_the_next_one_is_read(echo_model, tokenizers):
    read = []

    def blocks():
        for line in ("ab", "cd"):
            read.append(line)
            yield [line]

    found = Translator(echo_model, tokenizers).translate_blocks(blocks())
    assert [each.text for each in next(found)] == ["ab"]
    assert read == ["ab"]
    assert [each.text for each in next(found)] == ["cd"]
