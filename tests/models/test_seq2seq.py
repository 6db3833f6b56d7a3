"""Seq2Seq is what Sutskever et al. (2014) describe."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mtkit import models
from mtkit.models import seq2seq
from mtkit.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

SRC = torch.tensor([[4, 5, 6, 7, EOS_ID], [8, 9, EOS_ID, PAD_ID, PAD_ID]])
MASK = SRC == PAD_ID
TRG_IN = torch.tensor([[BOS_ID, 5, 6], [BOS_ID, 9, 4]])


def build(**fields: object) -> seq2seq.Model:
    torch.manual_seed(1)
    return models.build({"type": "seq2seq", "preset": "tiny", **fields}, 11, 11, PAD_ID).eval()  # type: ignore[return-value]


def reversed_rows(src: Tensor) -> Tensor:
    """Each row from its last token to its first, padding where it was."""
    rows = src.clone()
    for row in rows:
        n = int((row != PAD_ID).sum())
        row[:n] = row[:n].flip(0)
    return rows


def test_the_decoder_starts_from_all_layers_of_the_encoder() -> None:
    """CH-09: the source reaches the decoder through its first state alone."""
    model = build(n_layers=3)
    memory = model.encode(SRC, MASK)
    state = model.start(memory)
    assert state.hidden.shape == state.cell.shape == (2, 3, 16)
    emptied = memory._replace(states=torch.full_like(memory.states, torch.nan), cache=())
    step = model.step(TRG_IN[:, 0], state, emptied)
    assert step.logits.isfinite().all()


def test_each_layer_of_the_encoder_hands_over_its_last_state() -> None:
    """CH-09"""
    model = build(reverse_source=False)
    x = model.src_embedding(SRC.t())
    after = []
    for layer in model.encoder.layers:
        x, cells = layer.scan(layer.input(x), layer.zero_state(2), layer.zero_state(2))
        after.append((x[2, 1], cells[2, 1]))  # the second row has three tokens
    state = model.start(model.encode(SRC, MASK))
    for number, (hidden, cell) in enumerate(after):
        torch.testing.assert_close(state.hidden[1, number], hidden)
        torch.testing.assert_close(state.cell[1, number], cell)


def test_a_reversed_source_is_the_reversed_text() -> None:
    backwards, forwards = build(reverse_source=True), build(reverse_source=False)
    torch.testing.assert_close(backwards(SRC, MASK, TRG_IN), forwards(reversed_rows(SRC), MASK, TRG_IN))


def test_encoder_states_stay_in_reading_order() -> None:
    """The last token read is the first of the text, so only its state knows the whole source."""
    model = build(reverse_source=True)
    changed = SRC.clone()
    changed[0, 3] = 10
    difference = (model.encode(changed, MASK).states - model.encode(SRC, MASK).states)[0].abs().sum(dim=1)
    assert (difference[:4] > 0).all()
    assert difference[4] == 0  # EOS was read before it


def reading_steps(reverse_source: bool) -> list[int]:
    """At which step the encoder reads each token of the first row: all states from this step on feel a change of it."""
    model = build(reverse_source=reverse_source)
    states = model.encode(SRC, MASK).states[0]
    steps = []
    for position in range(SRC.shape[1]):
        changed = SRC.clone()
        changed[0, position] = 10
        n_felt = int((model.encode(changed, MASK).states[0] != states).any(dim=1).sum())
        steps.append(SRC.shape[1] - n_felt)
    return steps


def test_reversal_keeps_the_mean_distance_and_shortens_the_least() -> None:
    """CH-11: tokens x_j and y_j of a monotone translation, by the steps between reading one and writing the other."""
    n = SRC.shape[1]  # EOS is one of them
    forwards, backwards = (
        [n + j - read for j, read in enumerate(reading_steps(reverse_source))] for reverse_source in (False, True)
    )
    assert forwards == [n] * n
    assert backwards == [1, 3, 5, 7, 9]
    assert sum(backwards) == sum(forwards)


@pytest.mark.parametrize("n_layers", [1, 2])
def test_reversal_strengthens_the_gradient_from_the_first_word_to_the_first_word(n_layers: int) -> None:
    """CH-12, CH-20: at the first weights, loss(y_1) feels x_1 more when x_1 was read last, and the last word less.

    Orthogonal matrices keep the gradient as long as any: what is lost is the forget gate's half at each step.
    """
    src = torch.randint(4, 11, (8, 20), generator=torch.Generator().manual_seed(3))
    mask = torch.zeros_like(src, dtype=torch.bool)

    def influence(reverse_source: bool) -> tuple[float, float]:
        model = build(reverse_source=reverse_source, n_layers=n_layers)
        kept: list[Tensor] = []
        model.src_embedding.register_forward_hook(lambda _, __, output: kept.append(output))
        logits = model(src, mask, torch.full((8, 1), BOS_ID))
        loss = torch.nn.functional.cross_entropy(logits[:, 0], torch.full((8,), 5))
        (gradient,) = torch.autograd.grad(loss, kept[0])
        norms = gradient.norm(dim=(1, 2))  # by source position
        return norms[0].item(), norms[-1].item()

    first_forwards, last_forwards = influence(reverse_source=False)
    first_backwards, last_backwards = influence(reverse_source=True)
    assert first_backwards > 2 * first_forwards
    assert last_forwards > 2 * last_backwards


def test_parameters_are_those_of_the_closed_form() -> None:
    """Two embeddings, two stacks of 4 n (d + n + 1) a layer, and the output layer."""
    m, n, src_vocab, trg_vocab, layers = 12, 16, 21, 31, 3
    model = models.build({"type": "seq2seq", "preset": "tiny", "n_layers": layers}, src_vocab, trg_vocab, PAD_ID)
    stack = 4 * n * (m + n + 1) + (layers - 1) * 4 * n * (2 * n + 1)
    expected = m * (src_vocab + trg_vocab) + 2 * stack + trg_vocab * (n + 1)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_the_published_model_has_384_million_parameters_64_of_them_recurrent() -> None:
    """Sutskever et al. (2014), §3.4: 384M parameters of which 64M are recurrent; a sentence is 8,000 numbers."""
    with torch.device("meta"):
        model = models.build({"type": "seq2seq", "preset": "paper"}, 160_000, 80_000, PAD_ID)
    total = sum(parameter.numel() for parameter in model.parameters())
    recurrent = sum(p.numel() for part in (model.encoder, model.decoder) for p in part.parameters())
    assert round(total / 1e6) == 384
    assert round(recurrent / 1e6) == 64
    config = seq2seq.PRESETS["paper"]
    assert 2 * config.n_layers * config.d_hidden == 8000
    assert config.reverse_source
