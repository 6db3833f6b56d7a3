"""What search promises with every backend: the model's own probabilities, whatever else is in the batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from mtkit import models
from mtkit.data.batch import make_source
from mtkit.models import TranslationModel
from mtkit.search import Hypothesis, LengthPenalty, beam_search, greedy_search
from mtkit.search.ensemble import Ensemble
from mtkit.search.force import force
from mtkit.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

MakeModel = Callable[..., TranslationModel]
ROWS = [[4, 5, 6, 7, 8, 9], [9, 4], [], [10, 10, 1, 5]]
MAX_LENGTHS = [9, 5, 2, 7]


def sources(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    return make_source([np.array(row, dtype=np.int32) for row in rows])


def log_prob(model: TranslationModel, row: list[int], tokens: list[int]) -> float:
    """Of the tokens and the EOS after them, by teacher forcing."""
    logits = model(*sources([row]), torch.tensor([[BOS_ID, *tokens]]))
    targets = torch.tensor([*tokens, EOS_ID])
    return logits[0].double().log_softmax(1)[torch.arange(len(targets)), targets].sum().item()


def same(found: Hypothesis, expected: Hypothesis) -> bool:
    return found.tokens == expected.tokens and found.log_prob == pytest.approx(expected.log_prob, abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_log_probability_is_that_of_teacher_forcing(model: TranslationModel, beam_size: int) -> None:
    found = beam_search(
        model, model.encode(*sources(ROWS)), torch.tensor(MAX_LENGTHS), beam_size=beam_size, n_best=beam_size
    )
    for row, limit, hypotheses in zip(ROWS, MAX_LENGTHS, found, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert len(hypothesis.tokens) <= limit
            assert hypothesis.log_prob == pytest.approx(log_prob(model, row, hypothesis.tokens), abs=1e-4)


def test_beam_1_equals_greedy(model: TranslationModel) -> None:
    arguments = (model, model.encode(*sources(ROWS)), torch.tensor(MAX_LENGTHS))
    beams = beam_search(*arguments, beam_size=1)
    assert all(same(beam[0], greedy) for beam, greedy in zip(beams, greedy_search(*arguments), strict=True))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_result_does_not_depend_on_the_batch(model: TranslationModel, beam_size: int) -> None:
    together = beam_search(model, model.encode(*sources(ROWS)), torch.tensor(MAX_LENGTHS), beam_size=beam_size)
    for row, limit, expected in zip(ROWS, MAX_LENGTHS, together, strict=True):
        alone = beam_search(model, model.encode(*sources([row])), torch.tensor([limit]), beam_size=beam_size)
        assert same(alone[0][0], expected[0])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_full_width_beam_equals_exhaustive_search(model: TranslationModel, alpha: float) -> None:
    row, longest = [4, 7, 5], 2
    words = [token for token in range(11) if token > EOS_ID]
    translations = [list(t) for length in range(longest + 1) for t in itertools.product(words, repeat=length)]
    scores = [log_prob(model, row, tokens) / (len(tokens) + 1) ** alpha for tokens in translations]
    best = sorted(zip(scores, translations, strict=True), reverse=True)[:5]
    found = beam_search(
        model,
        model.encode(*sources([row])),
        torch.tensor([longest]),
        beam_size=len(translations),
        length_penalty=LengthPenalty(alpha),
        n_best=5,
    )[0]
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in best]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in best], abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_attention_comes_with_each_hypothesis(model: TranslationModel, beam_size: int) -> None:
    arguments = (model, model.encode(*sources(ROWS)), torch.tensor(MAX_LENGTHS))
    asked = beam_search(*arguments, beam_size=beam_size, need_attention=True)
    silent = beam_search(*arguments, beam_size=beam_size)
    for row, hypotheses, others in zip(ROWS, asked, silent, strict=True):
        assert same(hypotheses[0], others[0])
        assert others[0].attention is None
        attention = hypotheses[0].attention
        if not model.has_attention:
            assert attention is None
            continue
        assert attention is not None
        assert attention.shape == (len(hypotheses[0].tokens) + 1, len(row) + 1)  # EOS on both sides
        assert (attention >= 0).all()
        assert (attention.sum(dim=1) <= 1 + 1e-5).all()


GIVEN = [[[5, 9, 4, 4], []], [[6], [7, 7, 7]], [[1, 4], [8]], [[], [10, 5, 6, 7, 8]]]  # two translations of each row


@pytest.mark.parametrize("need_attention", [False, True])
def test_given_translations_have_the_probability_of_teacher_forcing(
    model: TranslationModel, need_attention: bool
) -> None:
    memory = model.encode(*sources(ROWS))
    given = [tokens for translations in GIVEN for tokens in translations]
    found, by_token = force(model, memory, given, need_attention=need_attention)
    for i, (hypothesis, each, tokens) in enumerate(zip(found, by_token, given, strict=True)):
        row = ROWS[i // 2]
        assert hypothesis.tokens == tokens
        assert hypothesis.log_prob == pytest.approx(log_prob(model, row, tokens), abs=1e-4)
        assert sum(each) == pytest.approx(hypothesis.log_prob, abs=1e-4)
        assert len(each) == len(tokens) + 1
        (alone,), _ = force(model, model.encode(*sources([row])), [tokens], need_attention=need_attention)
        assert (hypothesis.attention is not None) == (need_attention and model.has_attention)
        if hypothesis.attention is not None:
            assert hypothesis.attention.shape == (len(tokens) + 1, len(row) + 1)
            torch.testing.assert_close(hypothesis.attention, alone.attention, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_coverage_penalty_is_that_of_the_hypothesis_own_attention(model: TranslationModel, beam_size: int) -> None:
    """Wu et al. (2016), eq. 14, in NumPy; a model without attention has nothing to be penalised for."""
    beta = 0.3
    found = beam_search(
        model,
        model.encode(*sources(ROWS)),
        torch.tensor(MAX_LENGTHS),
        beam_size=beam_size,
        n_best=beam_size,
        coverage_beta=beta,
        need_attention=True,
    )
    for row, hypotheses in zip(ROWS, found, strict=True):
        assert [each.score for each in hypotheses] == sorted((each.score for each in hypotheses), reverse=True)
        for each in hypotheses:
            expected = each.log_prob / (len(each.tokens) + 1)
            assert (each.attention is not None) == model.has_attention
            if each.attention is not None:
                received = each.attention.double().numpy()[:, : len(row)].sum(0)
                expected += beta * np.log(np.clip(received, 1e-6, 1)).sum()
            assert each.score == pytest.approx(expected, abs=1e-3)


def test_a_model_joins_others_in_an_ensemble(model: TranslationModel) -> None:
    torch.manual_seed(7)
    other = models.build({"type": "transformer", "preset": "tiny"}, 11, 11, PAD_ID).eval()
    ensemble = Ensemble([model, other])
    memory = ensemble.encode(*sources(ROWS))
    found = beam_search(ensemble, memory, torch.tensor(MAX_LENGTHS), beam_size=3)
    for row, (best, *_) in zip(ROWS, found, strict=True):
        total = 0.0
        for i, token in enumerate([*best.tokens, EOS_ID]):
            prefix = torch.tensor([[BOS_ID, *best.tokens[:i]]])
            each = [
                member(*sources([row]), prefix)[0, -1].double().softmax(0)[token].item() for member in (model, other)
            ]
            total += math.log(sum(each) / 2)
        assert best.log_prob == pytest.approx(total, abs=1e-4)
