"""Heads that are taken away, and what a loss feels of it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from mtkit import models
from mtkit.analyze.heads import Head, all_heads, attention_sites, head_importance, heads_removed, heads_scaled
from mtkit.data.batch import Batch, make_batch
from mtkit.text.tokenizer import PAD_ID


def build() -> models.TranslationModel:
    torch.manual_seed(5)
    section = {"type": "transformer", "preset": "tiny", "n_layers": 2, "n_heads": 4}
    return models.build(section, 12, 12, PAD_ID).double().eval()


BATCH = make_batch([[5, 6, 7, 8], [9, 5]], [[6, 5, 9], [7]])
ALONE = [make_batch([[5, 6, 7, 8]], [[6, 5, 9]]), make_batch([[9, 5]], [[7]])]  # the same pairs, without padding


def loss(model: models.TranslationModel, batch: Batch = BATCH) -> torch.Tensor:
    logits = model(batch.src, batch.src_pad_mask, batch.trg_in)
    return F.cross_entropy(logits.flatten(0, 1), batch.trg_out.flatten(), ignore_index=PAD_ID)


def test_every_layer_of_both_sides_has_its_heads() -> None:
    model = build()
    assert len(attention_sites(model)) == 2 + 2 * 2
    assert len(all_heads(model)) == 6 * 4


def test_a_removed_head_is_one_whose_columns_of_the_output_matrix_are_zero() -> None:
    model = build()
    head = all_heads(model)[9]
    with heads_removed(model, [head]):
        found = loss(model)
    site = attention_sites(model)[head.site]
    d_head = site.output.in_features // site.n_heads
    with torch.no_grad():
        site.output.weight[:, head.number * d_head : (head.number + 1) * d_head] = 0
    torch.testing.assert_close(found, loss(model))


def test_afterwards_all_heads_are_back() -> None:
    model = build()
    before = loss(model)
    with heads_removed(model, all_heads(model)):
        assert not torch.equal(loss(model), before)
    assert torch.equal(loss(model), before)


def test_a_removed_head_is_away_in_stepwise_decoding_too() -> None:
    model = build()
    with heads_removed(model, all_heads(model)[::2]):
        expected = model(BATCH.src, BATCH.src_pad_mask, BATCH.trg_in)
        memory = model.encode(BATCH.src, BATCH.src_pad_mask)
        state, found = model.start(memory), []
        for prev in BATCH.trg_in.unbind(1):
            step = model.step(prev, state, memory)
            state = step.state
            found.append(step.logits)
    torch.testing.assert_close(torch.stack(found, dim=1), expected)


def test_importance_is_of_each_pair_on_its_own() -> None:
    """Slopes of unlike sign do not cancel, and the batches that pairs stand in change nothing."""
    model = build()
    single = [head_importance(model, [pair]) for pair in ALONE]
    for head, value in head_importance(model, [BATCH]).items():
        assert value == pytest.approx(sum(each[head] for each in single) / len(single), rel=1e-6)


def test_importance_is_the_slope_of_the_loss_in_a_heads_factor() -> None:
    model, pair = build(), ALONE[0]
    found = head_importance(model, [pair])
    assert list(found) == all_heads(model)
    for head in (Head(all_heads(model)[0].site, 2), all_heads(model)[-1]):
        slopes = []
        for change in (1e-3, -1e-3):
            factor = torch.ones(4).double()
            factor[head.number] += change
            with heads_scaled(model, {head.site: factor}), torch.no_grad():
                slopes.append(loss(model, pair))
        assert found[head] == pytest.approx(abs((slopes[0] - slopes[1]).item()) / 2e-3, rel=1e-3)
