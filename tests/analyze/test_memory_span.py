"""Gradients through time against closed forms, and a task that a cell can learn."""

from __future__ import annotations

import pytest
import torch

from mtkit.analyze.memory_span import N_SYMBOLS, Recaller, draw, gradients_through_time, learn_recall


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_a_linear_recurrence_follows_the_powers_of_its_modulus(scale: float) -> None:
    """CH-01, CH-02: an orthogonal matrix times the modulus has the spectral norm modulus^T."""
    found = gradients_through_time("linear", 30, scale=scale, d=8)
    assert found == pytest.approx([scale**t for t in range(1, 31)], rel=1e-9)


def test_the_jacobian_of_a_plain_recurrence_is_that_of_autograd() -> None:
    """CH-03"""
    found = gradients_through_time("elman", 5, scale=1.2, d=6)
    torch.manual_seed(1)  # the same draws, in the same order
    from mtkit.nn.recurrent import ElmanCell

    cell = ElmanCell(6, 6).double()
    torch.nn.init.orthogonal_(cell.recurrent.weight)
    weight = 1.2 * cell.recurrent.weight.detach()
    inputs = 0.5 * torch.randn(5, 1, 6).double()

    def last(start: torch.Tensor) -> torch.Tensor:
        state = start
        for step in inputs:
            state = torch.tanh(step + state @ weight.t())
        return state

    jacobian = torch.autograd.functional.jacobian(last, torch.zeros(1, 6).double())[0, :, 0]
    assert found[-1] == pytest.approx(torch.linalg.matrix_norm(jacobian, 2).item(), rel=1e-9)


def test_the_task_is_one_symbol_and_then_noise() -> None:
    tokens, symbols = draw(5, 7, torch.Generator().manual_seed(1))
    assert tokens.shape == (5, 8)
    assert torch.equal(tokens[:, 0], symbols)
    assert (symbols < N_SYMBOLS).all() and (tokens[:, 1:] >= N_SYMBOLS).all()


@pytest.mark.parametrize("kind", ["elman", "gru", "lstm"])
def test_every_cell_recalls_at_once_what_it_has_just_read(kind: str) -> None:
    found = learn_recall(kind, 0, d_hidden=32, updates=60, lr=1e-2)
    assert found.accuracy == 1


def test_a_plain_recurrence_reads_the_sequence_in_its_order() -> None:
    """CH-07: the state after the last token, by hand."""
    model = Recaller("elman", 4)
    tokens = torch.tensor([[3, 9, 12]])
    state = torch.zeros(1, 4)
    for token in tokens[0]:
        state = torch.tanh(model.cell.input(model.embedding(token[None])) + state @ model.cell.recurrent.weight.t())
    torch.testing.assert_close(model(tokens), model.output(state))


def test_clipping_saves_a_training_whose_gradients_explode() -> None:
    """CH-04: a linear recurrence of modulus 1.2 over 30 steps grows gradients 237-fold."""
    setting = {"recurrent_scale": 1.2, "sgd": True, "lr": 0.1, "d_hidden": 16, "updates": 60}
    free, clipped = (learn_recall("linear", 30, clip_norm=clip, **setting) for clip in (None, 1.0))
    assert not free.stays_finite
    assert clipped.stays_finite and clipped.largest_gradient > 10


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_gated_jacobian_is_that_of_finite_differences(kind: str) -> None:
    """CH-05, CH-07: d h_3 / d h_0, of an LSTM d (h_3, c_3) / d (h_0, c_0)."""
    d, steps = 6, 3
    found = gradients_through_time(kind, steps, d=d)[-1]
    torch.manual_seed(1)  # the same draws, in the same order
    model = Recaller(kind, d).double()
    inputs = model.cell.input(0.5 * torch.randn(steps, 1, d).double())

    def last(start: torch.Tensor) -> torch.Tensor:
        hidden, memory = start[:, :d], start[:, d:]
        for step in inputs:
            if kind == "gru":
                hidden = model.cell(step, hidden)
            else:
                hidden, memory = model.cell(step, hidden, memory)
        return torch.cat([hidden, memory], dim=-1)[0]

    width = d if kind == "gru" else 2 * d
    with torch.no_grad():
        columns = [(last(axis[None]) - last(-axis[None])) / 2e-5 for axis in torch.eye(width).double() * 1e-5]
    expected = torch.linalg.matrix_norm(torch.stack(columns, dim=1), 2).item()
    assert found == pytest.approx(expected, rel=1e-6)
