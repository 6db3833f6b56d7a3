"""The LSTM against its equations, torch's own, and numerical gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mtkit.nn.recurrent import GRUCell, LSTMCell, LSTMStack, LSTMStates, _LSTMScan, initialize, lstm_step


@pytest.fixture
def cell() -> LSTMCell:
    torch.manual_seed(1)
    return LSTMCell(3, 4).double()


def as_torch(cell: LSTMCell) -> torch.nn.LSTM:
    """torch's own LSTM with the same weights; its second bias is 0."""
    theirs = torch.nn.LSTM(cell.input.in_features, cell.d_hidden, dtype=torch.float64)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(cell.input.weight)
        theirs.weight_hh_l0.copy_(cell.recurrent.weight)
        theirs.bias_ih_l0.copy_(cell.input.bias)
        theirs.bias_hh_l0.zero_()
    return theirs


def test_a_step_follows_the_equations(cell: LSTMCell) -> None:
    """Zaremba et al. (2014), eq. 4, in NumPy."""
    x, h, c = (torch.randn(2, size, dtype=torch.float64) for size in (3, 4, 4))
    hidden, after = cell(cell.input(x), h, c)
    weight, bias, recurrent = (
        part.detach().numpy() for part in (cell.input.weight, cell.input.bias, cell.recurrent.weight)
    )
    pre = x.numpy() @ weight.T + bias + h.numpy() @ recurrent.T
    i, f, g, o = np.split(pre, 4, axis=1)

    def sigmoid(a: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-a))

    expected = sigmoid(f) * c.numpy() + sigmoid(i) * np.tanh(g)
    np.testing.assert_allclose(after.detach().numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(hidden.detach().numpy(), sigmoid(o) * np.tanh(expected), rtol=1e-12)


def test_a_scan_equals_torchs_lstm_in_value_and_gradient(cell: LSTMCell) -> None:
    theirs = as_torch(cell)
    x = torch.randn(6, 3, 3, dtype=torch.float64)
    hidden, cells = cell.scan(cell.input(x), cell.zero_state(3), cell.zero_state(3))
    expected, (_, last_cell) = theirs(x)
    torch.testing.assert_close(hidden, expected)
    torch.testing.assert_close(cells[-1], last_cell[0])
    upstream = torch.randn_like(hidden)
    ours = torch.autograd.grad(hidden, [cell.input.weight, cell.recurrent.weight], upstream)
    both = torch.autograd.grad(expected, [theirs.weight_ih_l0, theirs.weight_hh_l0], upstream)
    for actual, wanted in zip(ours, both, strict=True):
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_gradient_by_hand_is_the_numerical_one(reverse: bool) -> None:
    torch.manual_seed(2)
    inputs = torch.randn(4, 2, 16, dtype=torch.float64, requires_grad=True)
    h, c = (torch.randn(2, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weight = torch.randn(16, 4, dtype=torch.float64, requires_grad=True)
    is_real = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 0]], dtype=torch.float64)[:, :, None]

    def scan(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return _LSTMScan.apply(*tensors, is_real, reverse)

    assert torch.autograd.gradcheck(scan, (inputs, h, c, weight))


def test_one_node_for_the_gates_has_the_numerical_gradient() -> None:
    torch.manual_seed(3)
    inputs = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    c = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lstm_step, (inputs, c))


@pytest.mark.parametrize("reverse", [False, True])
def test_states_pass_over_padding(cell: LSTMCell, reverse: bool) -> None:
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    hidden, cells = cell.scan(cell.input(x), cell.zero_state(2), cell.zero_state(2), mask, reverse=reverse)
    short = x[:3, 1:]
    alone, alone_cells = cell.scan(cell.input(short), cell.zero_state(1), cell.zero_state(1), reverse=reverse)
    last = 0 if reverse else -1
    torch.testing.assert_close(hidden[last, 1], alone[last, 0])
    torch.testing.assert_close(cells[last, 1], alone_cells[last, 0])


def test_a_stack_is_torchs_deep_lstm() -> None:
    torch.manual_seed(4)
    stack = LSTMStack(3, 4, 3, dropout=0.0).double()
    theirs = torch.nn.LSTM(3, 4, num_layers=3, dtype=torch.float64)
    with torch.no_grad():
        for number, layer in enumerate(stack.layers):
            getattr(theirs, f"weight_ih_l{number}").copy_(layer.input.weight)
            getattr(theirs, f"weight_hh_l{number}").copy_(layer.recurrent.weight)
            getattr(theirs, f"bias_ih_l{number}").copy_(layer.input.bias)
            getattr(theirs, f"bias_hh_l{number}").zero_()
    x, h, c = torch.randn(5, 2, 3), torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    x, h, c = x.double(), h.double(), c.double()
    top, states = stack.scan(x, LSTMStates(h.transpose(0, 1), c.transpose(0, 1)))
    expected, (h_after, c_after) = theirs(x, (h, c))
    torch.testing.assert_close(top, expected)
    torch.testing.assert_close(states.hidden, h_after.transpose(0, 1))
    torch.testing.assert_close(states.cell, c_after.transpose(0, 1))


def test_a_stack_reads_token_by_token_what_it_reads_at_once() -> None:
    torch.manual_seed(8)
    stack = LSTMStack(3, 4, 2, dropout=0.0).double()
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    top, after = stack.scan(x, stack.zero_states(2))
    states = stack.zero_states(2)
    for t, token in enumerate(x):
        step, states = stack(token, states)
        torch.testing.assert_close(step, top[t])
    torch.testing.assert_close(states, after)


@pytest.mark.parametrize("reverse", [False, True])
def test_every_layer_of_a_stack_passes_over_padding(reverse: bool) -> None:
    torch.manual_seed(9)
    stack = LSTMStack(3, 4, 3, dropout=0.0).double()
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    top, after = stack.scan(x, stack.zero_states(2), mask, reverse=reverse)
    top_alone, alone = stack.scan(x[:3, 1:], stack.zero_states(1), reverse=reverse)
    torch.testing.assert_close(top[:3, 1:], top_alone)
    torch.testing.assert_close(after.hidden[1:], alone.hidden)
    torch.testing.assert_close(after.cell[1:], alone.cell)


def test_under_autocast_the_states_stay_in_float32() -> None:
    torch.manual_seed(10)
    cell = LSTMCell(3, 4)
    x, zero = torch.randn(5, 2, 3), cell.zero_state(2)
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    expected, expected_cells = cell.scan(cell.input(x), zero, zero, mask)
    with torch.autocast("cpu", torch.bfloat16):
        hidden, cells = cell.scan(cell.input(x), zero, zero, mask)
        step = cell(cell.input(x[0]), zero, zero)
    assert {tensor.dtype for tensor in (hidden, cells, *step)} == {torch.float32}
    torch.testing.assert_close(hidden, expected, rtol=0, atol=0.02)
    torch.testing.assert_close(cells, expected_cells, rtol=0, atol=0.02)
    torch.testing.assert_close(step[0], expected[0], rtol=0, atol=0.02)
    narrow, wide = (torch.autograd.grad(h.sum(), cell.recurrent.weight)[0] for h in (hidden, expected))
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, wide, rtol=0, atol=0.03 * wide.abs().max().item())


def test_dropout_leaves_what_a_layer_carries_along_alone() -> None:
    """Zaremba et al. (2014), §3.1: an input of 0 stays 0 under dropout, so two layers of one differ only from below."""
    torch.manual_seed(5)
    stack = LSTMStack(3, 4, 1, dropout=0.5).train()
    zeros = torch.zeros(6, 2, 3)
    states = LSTMStates(torch.randn(2, 1, 4), torch.randn(2, 1, 4))
    first, second = stack.scan(zeros, states)[0], stack.scan(zeros, states)[0]
    assert torch.equal(first, second)
    ones = torch.ones(6, 2, 3)
    assert not torch.equal(stack.scan(ones, states)[0], stack.scan(ones, states)[0])


def test_the_cell_path_has_no_weight_product() -> None:
    """CH-05: with the gates held fixed, d c_T / d c_0 is the product of the forget gates alone."""
    torch.manual_seed(7)
    gates = torch.randn(7, 1, 16, dtype=torch.float64)
    c = torch.randn(1, 4, dtype=torch.float64)
    product = torch.sigmoid(gates[:, 0, 4:8]).prod(dim=0)
    jacobian = torch.autograd.functional.jacobian(lambda start: _run(gates, start), c)
    torch.testing.assert_close(jacobian[0, :, 0], torch.diag(product))


def _run(gates: Tensor, c: Tensor) -> Tensor:
    """The last cell; the gates [len, batch, 4 d_hidden] are given and do not see h: the direct path alone."""
    for pre in gates:
        _, c = lstm_step(pre, c)
    return c


def test_an_open_forget_gate_keeps_the_cell_over_five_hundred_steps() -> None:
    """CH-05: the constant error carousel, f = 1 and i = 0 exactly."""
    pre = torch.tensor([[-torch.inf, torch.inf, 0.3, 0.7]], dtype=torch.float64)
    c = torch.tensor([[1.25]], dtype=torch.float64, requires_grad=True)
    after = _run(pre.expand(500, 1, 4), c)
    assert after.item() == 1.25
    assert torch.autograd.grad(after.sum(), c)[0].item() == 1.0


def test_a_gru_has_three_quarters_of_the_parameters_of_an_lstm() -> None:
    """CH-06"""

    def count(module: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    assert 4 * count(GRUCell(30, 50)) == 3 * count(LSTMCell(30, 50))
    assert count(LSTMCell(30, 50)) == 4 * (30 * 50 + 50 * 50 + 50)


def test_uniform_weights_lie_in_their_bound() -> None:
    """Sutskever et al. (2014), §3.4: all parameters from U[-0.08, 0.08]."""
    torch.manual_seed(6)
    stack = LSTMStack(40, 50, 2, dropout=0.0)
    initialize(stack, "uniform", 0.08)
    drawn = torch.cat([parameter.flatten() for parameter in stack.parameters()])
    assert drawn.abs().max() <= 0.08
    assert drawn.std().item() == pytest.approx(0.08 / 3**0.5, rel=0.02)
    assert all(layer.input.bias.abs().max() > 0 for layer in stack.layers)


def test_the_row_of_padding_is_zero_under_uniform_weights_too() -> None:
    embedding = torch.nn.Embedding(7, 3, padding_idx=2)
    initialize(embedding, "uniform", 0.08)
    assert (embedding.weight == 0).all(dim=1).tolist() == [False, False, True, False, False, False, False]
