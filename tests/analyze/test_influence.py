"""Gradients of log-probabilities with respect to source embeddings, against finite differences."""

from __future__ import annotations

import pytest
import torch

from mtkit import models
from mtkit.analyze.influence import left_out, source_gradients
from mtkit.analyze.lags import lags
from mtkit.data.batch import make_batch
from mtkit.text.tokenizer import PAD_ID

SRC, TRG = [[5, 6, 7, 8], [9, 5]], [[6, 5, 9], [7]]


def build(backend: str) -> models.TranslationModel:
    torch.manual_seed(3)
    model = models.build({"type": backend, "preset": "tiny"}, 12, 12, PAD_ID).double()
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    return model


@pytest.mark.parametrize("backend", models.available())
def test_a_gradient_is_the_slope_of_the_log_probability(backend: str) -> None:
    """The derivative along a direction, from two more runs with a token's embedding moved a little."""
    model, batch = build(backend), make_batch(SRC, TRG)
    norms = source_gradients(model, batch, 1)
    assert norms.shape == batch.src.shape
    assert (norms[batch.src_pad_mask] == 0).all()

    def log_prob(row: int, token: int, shift: torch.Tensor) -> torch.Tensor:
        def move(_module: object, args: tuple, output: torch.Tensor) -> torch.Tensor:
            nonlocal is_source
            if not is_source:
                return output
            is_source = False
            moved = output.clone()
            if args[0].shape == batch.src.shape and torch.equal(args[0], batch.src):
                moved[row, token] += shift
            else:
                moved[token, row] += shift
            return moved

        is_source = True
        handle = model.src_embedding.register_forward_hook(move)
        logits = model.eval()(batch.src, batch.src_pad_mask, batch.trg_in)
        handle.remove()
        return logits[row, 1].log_softmax(-1)[batch.trg_out[row, 1]]

    for row, token in ((0, 0), (0, 3), (1, 1)):
        width = next(model.src_embedding.parameters()).size(1)
        slopes = []
        for axis in torch.eye(width).double() * 1e-3:
            with torch.no_grad():
                slopes.append((log_prob(row, token, axis) - log_prob(row, token, -axis)) / 2e-3)
        assert norms[row, token].item() == pytest.approx(torch.stack(slopes).norm().item(), rel=1e-3, abs=1e-8)


def test_reading_backwards_keeps_the_mean_lag_and_shortens_the_least() -> None:
    """CH-11: forwards every word waits n steps; backwards 1, 3, 5, …, with the same mean."""
    assert lags(4, reverse=False) == [4, 4, 4, 4]
    assert lags(4, reverse=True) == [1, 3, 5, 7]
    for n_words in (1, 7, 30):
        forwards, backwards = lags(n_words, reverse=False), lags(n_words, reverse=True)
        assert sum(forwards) == sum(backwards)
        assert (min(forwards), min(backwards)) == (n_words, 1)


@pytest.mark.parametrize("backend", models.available())
def test_a_token_left_out_is_one_replaced(backend: str) -> None:
    """CH-101: against the two log-probabilities, sentence by sentence and without padding."""
    model, batch = build(backend).eval(), make_batch(SRC, TRG)
    found = left_out(model, batch, 1)
    assert found.shape == (2, batch.trg_out.size(1), batch.src.size(1))

    def log_probs(src: list[int], row: int) -> torch.Tensor:
        one = make_batch([src], [TRG[row]])
        with torch.no_grad():
            logits = model(one.src, one.src_pad_mask, one.trg_in).float()
        return logits.log_softmax(-1)[0].gather(1, one.trg_out[0, :, None])[:, 0]

    for row, token in ((0, 2), (1, 0)):
        replaced = [1 if place == token else word for place, word in enumerate(SRC[row])]
        expected = (log_probs(replaced, row) - log_probs(SRC[row], row)).abs()
        torch.testing.assert_close(found[row, : len(TRG[row]) + 1, token], expected)
    assert (found[1, :, len(SRC[1]) + 1 :] == 0).all() and (found[1, len(TRG[1]) + 1 :] == 0).all()
