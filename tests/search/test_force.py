"""Given translations: the model's own probabilities, whatever the batch, and its alignment."""

from __future__ import annotations

import math

import pytest
import torch

from mtkit import models
from mtkit.data.batch import make_batch, make_source
from mtkit.search import LengthPenalty, beam_search
from mtkit.search.force import force, force_at_once
from mtkit.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

PAD, UNK, BOS, EOS, A, B, C = range(7)


def test_log_probabilities_by_hand(table_model):
    def probabilities(source, prefix):
        return {(): {A: 0.5, B: 0.3, UNK: 0.2}, (A,): {B: 0.25, EOS: 0.75}}.get(prefix, {EOS: 1.0})

    model = table_model(probabilities, 7)
    memory = model.encode(*make_source([(A,), (B, C)]))
    found, by_token = force(model, memory, [[A, B], [UNK]], length_penalty=LengthPenalty(0.5))
    assert found[0].log_prob == pytest.approx(math.log(0.5 * 0.25))
    assert found[0].score == pytest.approx(math.log(0.125) / 3**0.5)
    assert by_token[0] == pytest.approx([math.log(0.5), math.log(0.25), 0.0])
    assert by_token[1] == pytest.approx([math.log(0.2), 0.0])


@pytest.mark.parametrize("backend", models.available())
def test_it_is_teacher_forcing_for_every_backend(backend):
    torch.manual_seed(1)
    model = models.build({"type": backend, "preset": "tiny"}, 11, 11, PAD_ID).eval()
    sources = [[4, 5, 6, 7], [], [9]]
    translations = [[5, 5], [7, 8, 9, 10, 4], []]
    found, by_token = force(model, model.encode(*make_source(sources)), translations)
    for source, tokens, hypothesis, each in zip(sources, translations, found, by_token, strict=True):
        logits = model(*make_source([source]), torch.tensor([[BOS_ID, *tokens]]))[0].double()
        expected = logits.log_softmax(-1)[torch.arange(len(tokens) + 1), torch.tensor([*tokens, EOS_ID])]
        assert each == pytest.approx(expected.tolist(), abs=1e-4)
        assert hypothesis.log_prob == pytest.approx(expected.sum().item(), abs=1e-4)


@pytest.mark.parametrize("backend", models.available())
def test_one_pass_finds_what_the_steps_find(backend, monkeypatch):
    """Two translations of each source, of unequal lengths, and logits in parts of four positions."""
    monkeypatch.setattr("mtkit.search.force._ROWS", 4)
    torch.manual_seed(1)
    model = models.build({"type": backend, "preset": "tiny"}, 11, 11, PAD_ID).eval()
    sources = [[4, 5, 6, 7], [], [9]]
    translations = [[5, 5], [7], [7, 8, 9, 10, 4], [], [4], [6, 6, 6]]
    penalty = LengthPenalty(0.7)
    by_step = force(model, model.encode(*make_source(sources)), translations, length_penalty=penalty)
    pairs = make_batch([source for source in sources for _ in range(2)], translations)
    at_once = force_at_once(model, pairs, translations, length_penalty=penalty)
    for one, other in zip(by_step[0], at_once[0], strict=True):
        assert one.tokens == other.tokens and other.attention is None
        assert (one.log_prob, one.score) == pytest.approx((other.log_prob, other.score), abs=1e-4)
    for one, other in zip(by_step[1], at_once[1], strict=True):
        assert one == pytest.approx(other, abs=1e-4)


def test_what_beam_search_found_is_scored_and_aligned_alike():
    """CH-17: rescoring a model's own n-best list gives its own order back."""
    torch.manual_seed(2)
    model = models.build({"type": "rnnsearch", "preset": "tiny"}, 11, 11, PAD_ID).eval()
    memory = model.encode(*make_source([[4, 5, 6], [7, 8, 9, 10]]))
    n_best = beam_search(model, memory, torch.tensor([4, 5]), beam_size=4, n_best=3, need_attention=True)
    given = [each.tokens for hypotheses in n_best for each in hypotheses]
    rescored, _ = force(model, memory, given, need_attention=True)
    for expected, found in zip([each for hypotheses in n_best for each in hypotheses], rescored, strict=True):
        assert found.score == pytest.approx(expected.score, abs=1e-5)
        torch.testing.assert_close(found.attention, expected.attention)
    for first in (0, 3):
        scores = [each.score for each in rescored[first : first + 3]]
        assert scores == sorted(scores, reverse=True)


def test_nothing_to_score_is_nothing(table_model):
    model = table_model(lambda source, prefix: {}, 7)
    nothing = torch.zeros(0, 1, dtype=torch.int64)
    assert force(model, model.encode(nothing, nothing.bool()), []) == ([], [])
