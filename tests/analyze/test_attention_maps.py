"""Recorded attention is the attention that was paid."""

from __future__ import annotations

import pytest
import torch

from mtkit import models
from mtkit.analyze.attention_maps import TOP, attention_maps
from mtkit.data.batch import make_batch
from mtkit.text.tokenizer import PAD_ID

BATCH = make_batch([[5, 6, 7, 8], [9, 5]], [[6, 5, 9], [7]])


def build(backend: str, **changes: object) -> models.TranslationModel:
    torch.manual_seed(3)
    return models.build({"type": backend, "preset": "tiny", **changes}, 12, 12, PAD_ID).eval()


@pytest.mark.parametrize("kv", ["mha", "gqa", "mqa", "mla"])
def test_every_head_of_every_layer_has_a_map_of_each_sentence(kv: str) -> None:
    model = build("transformer", kv=kv)
    before = model(BATCH.src, BATCH.src_pad_mask, BATCH.trg_in)
    first, second = attention_maps(model, BATCH)
    assert len(first) == len(second) == 2 * 2 + 2 * 2 * 2
    shapes = {each.layer: tuple(each.weights.shape) for each in second}
    assert shapes["encoder.0.self_attention"] == (3, 3)
    assert shapes["decoder.0.self_attention"] == (2, 2)
    assert shapes["decoder.1.cross_attention"] == (2, 3)
    for each in first + second:
        torch.testing.assert_close(each.weights.sum(1), torch.ones(len(each.weights)))
    assert torch.equal(model(BATCH.src, BATCH.src_pad_mask, BATCH.trg_in), before)


def test_the_mean_over_heads_is_what_decoding_gives_out() -> None:
    """`step` gives the attention of the layer below the last, averaged over its heads."""
    model = build("transformer")
    maps = attention_maps(model, BATCH)[0]
    mean = torch.stack([each.weights for each in maps if each.layer == "decoder.0.cross_attention"]).mean(0)
    memory = model.encode(BATCH.src[:1], BATCH.src_pad_mask[:1])
    state = model.start(memory)
    for row, prev in zip(mean, BATCH.trg_in[:1].unbind(1), strict=True):
        step = model.step(prev, state, memory, need_attention=True)
        state = step.state
        torch.testing.assert_close(step.attention[0], row)


def test_a_decoders_row_looks_at_nothing_that_comes_later() -> None:
    for each in attention_maps(build("transformer"), BATCH)[0]:
        if each.layer.startswith("decoder") and "self" in each.layer:
            assert torch.equal(each.weights, each.weights.tril())


@pytest.mark.parametrize("backend", ["rnnsearch", "luong", "convs2s"])
def test_a_model_with_one_map_has_it_too(backend: str) -> None:
    first, second = attention_maps(build(backend), BATCH)
    assert [(each.layer, each.head, tuple(each.weights.shape)) for each in first] == [(TOP, 0, (4, 5))]
    assert second[0].weights.shape == (2, 3)
