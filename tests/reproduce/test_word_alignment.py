"""Links from attention on given translations."""

from __future__ import annotations

from pathlib import Path

import torch

from mtkit import models
from mtkit.analyze.attention_maps import AttentionMap
from mtkit.checkpoint import LoadedModel
from mtkit.evaluate.alignment import alignment_error_rate
from mtkit.reproduce.word_alignment import aligning_map, reference_links, reference_weights
from mtkit.text.grammar import generate
from mtkit.text.syntax import split_words
from mtkit.text.tokenizer import PAD_ID, Tokenizers, learn

PAIRS = list(generate(split="test", pairs=60, min_words=3, max_words=12))


def loaded(kind: str, normalization: str = "nmt_nfkc") -> LoadedModel:
    texts = [text for pair in PAIRS for text in (pair.src, pair.trg)]
    joint = learn(texts, kind=kind, vocab_size=300, normalization=normalization)
    torch.manual_seed(1)
    section = {"type": "rnnsearch", "preset": "tiny"}
    model = models.build(section, joint.vocab_size, joint.vocab_size, PAD_ID).eval()
    return LoadedModel(model, Tokenizers(joint, joint, True), None, Path("run"), "update-1", 1)


def test_every_word_of_a_reference_has_one_link_whatever_the_tokens() -> None:
    for kind in ("word", "bpe", "char"):
        found = reference_links(loaded(kind), [pair.src for pair in PAIRS], [pair.trg for pair in PAIRS])
        for pair, links in zip(PAIRS, found, strict=True):
            assert sorted(trg for _, trg in links) == list(range(len(split_words(pair.trg))))
            assert all(0 <= src < len(split_words(pair.src)) for src, _ in links)
        assert 0 < alignment_error_rate(found, [pair.alignment for pair in PAIRS]) <= 1


def test_words_are_compared_as_the_tokenizer_writes_them() -> None:
    """nmt_nfkc writes three characters for a fraction, nmt_nfkc_cf small letters for capitals: the same words."""
    pair = PAIRS[0]
    shape = len(split_words(pair.trg)), len(split_words(pair.src)) + 1
    for model in (loaded("bpe"), loaded("bpe", "nmt_nfkc_cf")):
        (found,) = reference_weights(model, ["\u00bd " + pair.src], [pair.trg])
        assert found is not None and found.shape == shape


def test_a_pair_whose_words_the_tokenizer_does_not_keep_apart_has_no_weights() -> None:
    """A typed U+2581 is a blank to SentencePiece."""
    pair = PAIRS[0]
    whole, changed = reference_weights(loaded("bpe"), [pair.src, "a\u2581b " + pair.src], [pair.trg, pair.trg])
    assert changed is None
    assert whole is not None and whole.shape == (len(split_words(pair.trg)), len(split_words(pair.src)))


def test_of_a_transformer_the_layer_below_the_last_is_asked_and_its_heads_averaged() -> None:
    maps = [
        AttentionMap(f"decoder.{layer}.cross_attention", head, torch.full((1, 2), 10.0 * layer + head))
        for layer in (0, 1, 2)
        for head in (0, 1)
    ]
    maps.insert(0, AttentionMap("encoder.0.self_attention", 0, torch.zeros(2, 2)))
    assert torch.equal(aligning_map(maps), torch.full((1, 2), 10.5))
