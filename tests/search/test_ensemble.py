"""Several models as one: the mean of their distributions."""

from __future__ import annotations

import math

import pytest
import torch

from mtkit import models
from mtkit.data.batch import make_source
from mtkit.errors import RequestError
from mtkit.search import beam_search
from mtkit.search.ensemble import Ensemble, join_models
from mtkit.search.translator import Translator
from mtkit.text.tokenizer import Tokenizers, learn

PAD, UNK, BOS, EOS, A, B, C = range(7)
SOURCES = make_source([(A, B), (C,)])


def fixed(first, second):
    """Distributions before and after the first token."""
    return lambda source, prefix: second if prefix else first


def search(model, **options):
    return beam_search(model, model.encode(*SOURCES), torch.tensor([5, 5]), **{"beam_size": 2, **options})


def test_probabilities_are_averaged_and_not_their_logarithms(table_model):
    one = table_model(fixed({A: 0.9, B: 0.1}, {EOS: 1.0}), 7)
    other = table_model(fixed({A: 0.2, B: 0.8}, {EOS: 1.0}), 7)
    best = search(Ensemble([one, other]))[0][0]
    assert best.tokens == [A]  # 0.55 against 0.45
    assert best.log_prob == pytest.approx(math.log(0.55))


def test_a_word_that_one_model_excludes_is_not_lost(table_model):
    one = table_model(fixed({A: 1.0}, {EOS: 1.0}), 7)
    other = table_model(fixed({B: 1.0}, {EOS: 1.0}), 7)
    found = search(Ensemble([one, other]), n_best=2)[0]
    assert sorted(each.tokens for each in found) == [[A], [B]]
    assert [each.log_prob for each in found] == pytest.approx([math.log(0.5)] * 2)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("backend", ["seq2seq", "rnnsearch", "luong", "convs2s", "transformer"])
def test_a_model_with_itself_is_the_model(backend, beam_size):
    torch.manual_seed(2)
    model = models.build({"type": backend, "preset": "tiny"}, 11, 11, PAD).eval()
    alone, twice = search(model, beam_size=beam_size), search(Ensemble([model, model]), beam_size=beam_size)
    for one, other in zip(alone, twice, strict=True):
        assert one[0].tokens == other[0].tokens
        assert one[0].log_prob == pytest.approx(other[0].log_prob, abs=1e-5)
    trg_in = torch.tensor([[BOS, A, B], [BOS, C, A]])
    torch.testing.assert_close(Ensemble([model, model])(*SOURCES, trg_in), model(*SOURCES, trg_in).log_softmax(-1))


def test_an_ensemble_is_made_to_translate():
    """Whoever builds one gets no dropout with it."""
    members = [models.build({"type": "transformer", "preset": "tiny", "dropout": 0.5}, 9, 9, PAD) for _ in range(2)]
    ensemble = Ensemble(members)
    assert not any(module.training for module in (ensemble, *members, *members[0].modules()))


def test_mixed_backends_search_with_the_mean_of_teacher_forcing():
    torch.manual_seed(3)
    members = [models.build({"type": name, "preset": "tiny"}, 11, 11, PAD).eval() for name in models.available()]
    best = search(Ensemble(members), beam_size=3)
    for row, hypotheses in enumerate(best):
        trg_in = torch.tensor([[BOS, *hypotheses[0].tokens]])
        n_src = int((~SOURCES[1][row]).sum())
        one = (SOURCES[0][row : row + 1, :n_src], SOURCES[1][row : row + 1, :n_src])
        mean = torch.stack([member(*one, trg_in).double().softmax(-1) for member in members]).mean(0)[0]
        targets = [*hypotheses[0].tokens, EOS]
        expected = mean[torch.arange(len(targets)), targets].log().sum().item()
        assert hypotheses[0].log_prob == pytest.approx(expected, abs=1e-4)


def test_attention_is_the_mean_of_the_members_that_have_it(table_model):
    torch.manual_seed(4)
    attentive, other = (models.build({"type": "rnnsearch", "preset": "tiny"}, 11, 11, PAD).eval() for _ in range(2))
    blind = models.build({"type": "rnnencdec", "preset": "tiny"}, 11, 11, PAD).eval()
    ensemble = Ensemble([blind, attentive, other])
    assert ensemble.has_attention
    assert not Ensemble([blind, blind]).has_attention
    memory = ensemble.encode(*SOURCES)
    prev = torch.tensor([BOS, BOS])
    step = ensemble.step(prev, ensemble.start(memory), memory, need_attention=True)
    rows = [
        member.step(prev, member.start(own), own, need_attention=True).attention
        for member, own in ((attentive, memory.cache[1]), (other, memory.cache[2]))
    ]
    torch.testing.assert_close(step.attention, (rows[0] + rows[1]) / 2)


def test_five_models_with_beam_2_take_fewer_decoder_rows_than_one_with_beam_12(table_model, random_probabilities):
    """CH-16: the caption of Sutskever et al. (2014), table 1. Ten decoder rows a step against twelve."""
    probabilities = random_probabilities(1, 40, sharpness=0.3)

    def most_rows(n_models, beam_size):
        members = [table_model(probabilities, 40) for _ in range(n_models)]
        model = Ensemble(members)
        beam_search(model, model.encode(*SOURCES), torch.tensor([8, 8]), beam_size=beam_size)
        steps = zip(*(member.seen for member in members), strict=True)
        return max(sum(rows / memory_rows for memory_rows, rows in step) for step in steps)

    assert most_rows(5, 2) == 10
    assert most_rows(1, 12) == 12


@pytest.fixture(scope="module")
def two_vocabularies():
    letters = learn(["abc cba abc"], kind="char", vocab_size=8)
    pieces = learn(["abc cba abc ab ab cab"] * 5, kind="bpe", vocab_size=12)
    return letters, pieces


def test_members_may_read_other_source_tokens(two_vocabularies):
    letters, pieces = two_vocabularies
    torch.manual_seed(5)
    first = models.build({"type": "rnnsearch", "preset": "tiny"}, letters.vocab_size, letters.vocab_size, PAD)
    second = models.build({"type": "rnnencdec", "preset": "tiny"}, pieces.vocab_size, letters.vocab_size, PAD)
    tokenizers = [Tokenizers(letters, letters, True), Tokenizers(pieces, letters, False)]
    joined = join_models([first, second], tokenizers, ["one", "two"])
    translator = Translator(
        joined.model, tokenizers[0], beam_size=2, src_tokenizers=joined.src_tokenizers, need_attention=True
    )
    lines = ["abc ab", "c", "cab abc cba"]
    together = translator.translate(lines)
    for line, found in zip(lines, together, strict=True):
        (alone,) = translator.translate([line])
        assert found.text == alone.text
        assert found.hypotheses[0].log_prob == pytest.approx(alone.hypotheses[0].log_prob, abs=1e-5)
        targets = [*letters.ids(found.hypotheses[0].tokens), EOS]
        trg_in = torch.tensor([[BOS, *targets[:-1]]])
        each = [
            model(*make_source(tokenizer.src.encode([line])), trg_in)[0].double().softmax(-1)
            for model, tokenizer in zip((first, second), tokenizers, strict=True)
        ]
        expected = torch.stack(each).mean(0)[torch.arange(len(targets)), targets].log().sum().item()
        assert found.hypotheses[0].log_prob == pytest.approx(expected, abs=1e-4), "each reads its own tokens"
    scored = translator.score(lines, [found.text for found in together])
    for found, score in zip(together, scored, strict=True):
        if found.hypotheses[0].tokens == score.tokens:
            assert score.log_prob == pytest.approx(found.hypotheses[0].log_prob, abs=1e-4)


def test_another_target_vocabulary_is_refused_with_both_names(two_vocabularies):
    letters, pieces = two_vocabularies
    tokenizers = [Tokenizers(letters, letters, True), Tokenizers(letters, pieces, False)]
    with pytest.raises(RequestError, match="one target vocabulary; runs/a and runs/b have different ones"):
        join_models([None, None], tokenizers, ["runs/a", "runs/b"])
