"""The GRU against its equations in NumPy, the scan against single steps, and the maxout readout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mtkit.nn.recurrent import GRUCell, MaxoutReadout, initialize


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def random_(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """In float64, with weights that leave no equation near zero or saturated."""
    generator = torch.Generator().manual_seed(seed)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def paper_step(cell: GRUCell, e: np.ndarray, s: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Bahdanau et al. (2015), A.1.1, one vector each, gate by gate."""
    w_z, w_r, w = np.split(cell.input.weight.detach().numpy(), 3)
    b_z, b_r, b = np.split(cell.input.bias.detach().numpy(), 3)
    c_z, c_r, c_s = np.split(cell.context.weight.detach().numpy(), 3)
    u_z, u_r, u = np.split(cell.recurrent.weight.detach().numpy(), 3)
    z = sigmoid(w_z @ e + u_z @ s + c_z @ c + b_z)
    r = sigmoid(w_r @ e + u_r @ s + c_r @ c + b_r)
    proposal = np.tanh(w @ e + u @ (r * s) + c_s @ c + b)
    return (1 - z) * s + z * proposal


def scan_by_steps(cell: GRUCell, inputs: Tensor, state: Tensor, pad_mask: Tensor, *, reverse: bool) -> Tensor:
    """What `GRUCell.scan` computes, with autograd's own gradient."""
    states: dict[int, Tensor] = {}
    for t in reversed(range(len(inputs))) if reverse else range(len(inputs)):
        state = torch.where(pad_mask[:, t, None], state, cell(inputs[t], state))
        states[t] = state
    return torch.stack([states[t] for t in range(len(inputs))])


@pytest.fixture
def cell() -> GRUCell:
    return random_(GRUCell(3, 4, 2))


@pytest.fixture
def pad_mask() -> Tensor:
    return torch.tensor([[0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 1, 1, 1, 1]], dtype=torch.bool)


def test_a_step_by_hand() -> None:
    """All weights 0 but those of one unit: z = sigmoid(0) = 1/2, r = 1/2, s~ = tanh(1 * e + 2 * r * s)."""
    cell = GRUCell(1, 1).double()
    with torch.no_grad():
        cell.input.weight.copy_(torch.tensor([[0.0], [0.0], [1.0]]))
        cell.recurrent.weight.copy_(torch.tensor([[0.0], [0.0], [2.0]]))
        cell.input.bias.zero_()
    e, s = torch.tensor([[0.3]], dtype=torch.float64), torch.tensor([[0.5]], dtype=torch.float64)
    assert cell(cell.input(e), s).item() == pytest.approx(0.5 * 0.5 + 0.5 * np.tanh(0.3 + 2 * 0.5 * 0.5))


def test_a_step_is_the_equations_of_the_paper(cell: GRUCell) -> None:
    rng = np.random.default_rng(0)
    e, s, c = rng.normal(size=(5, 3)), rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    found = cell(cell.project(torch.from_numpy(e), torch.from_numpy(c)), torch.from_numpy(s))
    expected = np.stack([paper_step(cell, *row) for row in zip(e, s, c, strict=True)])
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_its_steps(cell: GRUCell, pad_mask: Tensor, reverse: bool) -> None:
    torch.manual_seed(0)
    inputs, state = torch.randn(5, 3, 12).double(), torch.randn(3, 4).double()
    found = cell.scan(inputs, state, pad_mask, reverse=reverse)
    torch.testing.assert_close(found, scan_by_steps(cell, inputs, state, pad_mask, reverse=reverse))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_the_gradient_of_a_scan_by_hand_is_the_numerical_one(
    cell: GRUCell, pad_mask: Tensor, reverse: bool, padded: bool
) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(5, 3, 12, dtype=torch.float64, requires_grad=True)
    state = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def scan(inputs: Tensor, state: Tensor, _weight: Tensor) -> Tensor:
        return cell.scan(inputs, state, pad_mask if padded else None, reverse=reverse)

    assert torch.autograd.gradcheck(scan, (inputs, state, cell.recurrent.weight))


def test_padding_carries_the_state_and_gives_no_gradient(cell: GRUCell, pad_mask: Tensor) -> None:
    inputs = torch.randn(5, 3, 12, dtype=torch.float64, requires_grad=True)
    states = cell.scan(inputs, torch.zeros(3, 4, dtype=torch.float64), pad_mask)
    assert torch.equal(states[4, 1], states[1, 1])
    assert torch.equal(states[4, 2], states[0, 2])
    states[4].sum().backward()
    assert inputs.grad is not None
    assert (inputs.grad[pad_mask.t()] == 0).all()
    assert (inputs.grad[~pad_mask.t()] != 0).any(dim=1).all()


def test_a_reverse_scan_begins_at_the_last_real_token(cell: GRUCell) -> None:
    inputs, start = torch.randn(3, 1, 12).double(), torch.zeros(1, 4).double()
    alone = cell.scan(inputs, start, torch.zeros(1, 3, dtype=torch.bool), reverse=True)
    padded = torch.cat([inputs, torch.randn(4, 1, 12).double()])
    mask = torch.tensor([[False] * 3 + [True] * 4])
    torch.testing.assert_close(cell.scan(padded, start, mask, reverse=True)[:3], alone)


def test_a_scan_of_no_steps_is_empty_and_still_has_a_gradient(cell: GRUCell) -> None:
    states = cell.scan(torch.zeros(0, 3, 12).double(), torch.zeros(3, 4).double())
    assert states.shape == (0, 3, 4)
    states.sum().backward()
    assert cell.recurrent.weight.grad is not None
    assert (cell.recurrent.weight.grad == 0).all()


def test_under_autocast_the_state_stays_in_float32() -> None:
    torch.manual_seed(0)
    cell = GRUCell(3, 4)
    inputs, state = torch.randn(5, 3, 12), torch.zeros(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        low = cell.scan(inputs, state)
        step = cell(inputs[0], state)
    assert low.dtype == step.dtype == torch.float32
    torch.testing.assert_close(low, cell.scan(inputs, state), rtol=0, atol=0.02)


def test_maxout_takes_the_larger_of_neighbours() -> None:
    """Bahdanau et al. (2015), A.2.2: t = U_o s + V_o E y + C_o c, then the larger of elements 2j - 1 and 2j."""
    readout = MaxoutReadout(2, 1, 1, 2).double()
    with torch.no_grad():
        readout.state.weight.copy_(torch.tensor([[1, 0], [0, 1], [-1, 0], [0, -1]]))
        readout.state.bias.copy_(torch.tensor([0.0, 0.5, 0.0, 0.0]))
        readout.embedding.weight.copy_(torch.tensor([[0.0], [0.0], [2.0], [0.0]]))
        readout.context.weight.copy_(torch.tensor([[0.0], [0.0], [0.0], [3.0]]))
    state, embedding, context = (torch.tensor(x).double() for x in ([[3.0, 1.0]], [[4.0]], [[1.0]]))
    # t = [3, 1.5, -3 + 8, -1 + 3] = [3, 1.5 | 5, 2]
    assert readout(state, embedding, context).tolist() == [[3.0, 5.0]]


def test_the_paper_scheme_draws_what_the_paper_says() -> None:
    torch.manual_seed(0)
    model = torch.nn.ModuleList([torch.nn.Embedding(300, 40, padding_idx=0), GRUCell(40, 50, 60)])
    initialize(model, "paper")
    embedding, cell = model
    assert embedding.weight[1:].std().item() == pytest.approx(0.01, rel=0.05)
    assert (embedding.weight[0] == 0).all()
    assert cell.input.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert cell.context.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert (cell.input.bias == 0).all()


@pytest.mark.parametrize("scheme", ["paper", "xavier"])
def test_recurrent_matrices_start_orthogonal_gate_by_gate(scheme: str) -> None:
    cell = GRUCell(3, 8)
    initialize(cell, scheme)
    for gate in cell.recurrent.weight.detach().chunk(3):
        torch.testing.assert_close(gate @ gate.t(), torch.eye(8), rtol=0, atol=1e-5)
