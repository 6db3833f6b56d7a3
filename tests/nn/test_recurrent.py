"""The plain layer's Jacobians, the GRU against its equations, the scan against single steps, and maxout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mtkit.nn.recurrent import ElmanCell, GRUCell, LSTMCell, MaxoutReadout, initialize


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
@pytest.mark.parametrize(("cell", "n_gates"), [(ElmanCell(3, 8), 1), (GRUCell(3, 8), 3), (LSTMCell(3, 8), 4)])
def test_recurrent_matrices_start_orthogonal_gate_by_gate(scheme: str, cell: torch.nn.Module, n_gates: int) -> None:
    initialize(cell, scheme)
    for gate in cell.recurrent.weight.detach().chunk(n_gates):
        torch.testing.assert_close(gate @ gate.t(), torch.eye(8), rtol=0, atol=1e-5)


def test_xavier_bounds_each_gate_by_its_own_width() -> None:
    """Glorot and Bengio (2010): U[-a, a] with a = sqrt(6 / (d_in + d_out)), where d_out is that of one gate."""
    torch.manual_seed(0)
    cell = GRUCell(40, 50, 60)
    initialize(cell, "xavier")
    for linear, d_input in ((cell.input, 40), (cell.context, 60)):
        bound = (6 / (d_input + 50)) ** 0.5
        assert 0.99 * bound < linear.weight.abs().max().item() <= bound
        assert linear.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)


def test_xavier_draws_embeddings_of_unit_variance() -> None:
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(300, 40, padding_idx=0)
    initialize(embedding, "xavier")
    assert embedding.weight[1:].std().item() == pytest.approx(1.0, rel=0.05)
    assert (embedding.weight[0] == 0).all()


def elman(d_hidden: int, scale: float, *, linear: bool) -> ElmanCell:
    """U is `scale` times an orthogonal matrix: all its eigenvalues have this modulus."""
    torch.manual_seed(0)
    cell = ElmanCell(3, d_hidden, linear=linear).double()
    with torch.no_grad():
        torch.nn.init.orthogonal_(cell.recurrent.weight).mul_(scale)
    return cell


def jacobian(cell: ElmanCell, inputs: Tensor, start: Tensor) -> Tensor:
    """d h_T / d h_0, [d_hidden, d_hidden]; `inputs` [T, d_hidden] are W x + b."""

    def run(state: Tensor) -> Tensor:
        for step in inputs:
            state = cell(step[None], state[None])[0]
        return state

    return torch.autograd.functional.jacobian(run, start, vectorize=True)


def test_the_jacobian_of_a_linear_layer_is_a_power_of_its_matrix() -> None:
    """CH-01"""
    cell = random_(ElmanCell(3, 5, linear=True))
    found = jacobian(cell, torch.randn(12, 5).double(), torch.randn(5).double())
    expected = np.linalg.matrix_power(cell.recurrent.weight.detach().numpy(), 12)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("scale", [0.9, 1.0, 1.1])
def test_a_linear_layers_gradient_vanishes_or_explodes_exponentially(scale: float) -> None:
    """CH-02: log |J| over T is a line of slope log |lambda|; 0.9^100 = 2.7e-5 and 1.1^100 = 1.4e4."""
    cell = elman(8, scale, linear=True)
    for n_steps in (1, 10, 100):
        norm = torch.linalg.matrix_norm(jacobian(cell, torch.randn(n_steps, 8).double(), torch.zeros(8).double()), 2)
        assert norm.log().item() == pytest.approx(n_steps * np.log(scale), abs=1e-9)


def test_the_jacobian_of_a_plain_layer_has_the_slopes_of_the_tanh() -> None:
    """CH-03: J = prod_t diag(1 - tanh^2(a_t)) U, the latest step leftmost."""
    cell = random_(ElmanCell(3, 5))
    inputs, start = torch.randn(6, 5).double(), torch.randn(5).double()
    u, state, expected = cell.recurrent.weight.detach().numpy(), start.numpy(), np.eye(5)
    for step in inputs.numpy():
        state = np.tanh(step + u @ state)
        expected = np.diag(1 - state**2) @ u @ expected
    np.testing.assert_allclose(jacobian(cell, inputs, start).numpy(), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_the_tanh_makes_gradients_vanish_even_where_the_linear_layer_explodes(scale: float) -> None:
    """CH-03: a modulus above 1 is necessary for explosion, not sufficient."""
    plain = elman(32, scale, linear=False)
    inputs = 0.5 * torch.randn(100, 32, generator=torch.Generator().manual_seed(1)).double()
    norms = [torch.linalg.matrix_norm(jacobian(plain, inputs[:n], torch.zeros(32).double()), 2) for n in (25, 50, 100)]
    assert norms[0] < scale**25
    assert norms[1] < norms[0] / 10
    assert norms[2] < min(norms[1] / 10, scale**100 / 100)


def test_of_a_linear_and_a_plain_layer_only_one_is_bounded() -> None:
    """h' = x + 2 h from 0 with x = 1: 1, 3, 7; the other is tanh of the same sums."""
    for linear, expected in ((True, 7.0), (False, np.tanh(1 + 2 * np.tanh(1 + 2 * np.tanh(1))))):
        cell = ElmanCell(1, 1, linear=linear).double()
        with torch.no_grad():
            cell.recurrent.weight.fill_(2)
        state = torch.zeros(1, 1).double()
        for _ in range(3):
            state = cell(torch.ones(1, 1).double(), state)
        assert state.item() == pytest.approx(expected)
