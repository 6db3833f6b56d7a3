"""How far back recurrent cells remember: gradients through time, and a recall task that is learned."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtkit.nn.recurrent import ElmanCell, GRUCell, LSTMCell, initialize

Cell = Literal["linear", "elman", "gru", "lstm"]
N_SYMBOLS = 8


class Recaller(nn.Module):
    """Reads one symbol, then noise, and says which symbol it was: one cell, one output layer.

    Args:
        forget_bias: of the LSTM's forget gate at the start (Jozefowicz et al. 2015 advise 1).
    """

    def __init__(self, kind: Cell, d_hidden: int, forget_bias: float = 1.0) -> None:
        super().__init__()
        self.kind = kind
        self.embedding = nn.Embedding(2 * N_SYMBOLS, d_hidden)  # symbols, then noise
        self.cell: nn.Module
        if kind in ("linear", "elman"):
            self.cell = ElmanCell(d_hidden, d_hidden, linear=kind == "linear")
        else:
            self.cell = {"gru": GRUCell, "lstm": LSTMCell}[kind](d_hidden, d_hidden)
        self.output = nn.Linear(d_hidden, N_SYMBOLS)
        initialize(self, "xavier")
        if isinstance(self.cell, LSTMCell):
            with torch.no_grad():
                self.cell.input.bias[d_hidden : 2 * d_hidden] = forget_bias

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [batch, length] -> logits [batch, symbols] after the last token."""
        return self.output(self.last_state(self.embedding(tokens.t())))

    def last_state(self, embedded: Tensor) -> Tensor:
        """The state after the last of `embedded` [length, batch, d_hidden]."""
        cell, batch = self.cell, embedded.size(1)
        if isinstance(cell, ElmanCell):
            inputs, state = cell.input(embedded), embedded.new_zeros(batch, cell.d_hidden)
            for step in inputs:
                state = cell(step, state)
            return state
        assert isinstance(cell, (GRUCell, LSTMCell))
        zero = cell.zero_state(batch)
        if isinstance(cell, GRUCell):
            return cell.scan(cell.input(embedded), zero)[-1]
        return cell.scan(cell.input(embedded), zero, zero)[0][-1]


def draw(batch: int, delay: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A symbol and `delay` tokens of noise, [batch, 1 + delay], and the symbols [batch]."""
    symbols = torch.randint(N_SYMBOLS, (batch,), generator=generator)
    noise = torch.randint(N_SYMBOLS, 2 * N_SYMBOLS, (batch, delay), generator=generator)
    return torch.cat([symbols[:, None], noise], dim=1), symbols


class Recall(NamedTuple):
    """What a cell has learned of the task."""

    accuracy: float  # on 512 new sequences; 1 / 8 is chance
    stays_finite: bool  # its training loss, at every update
    largest_gradient: float  # norm, before clipping; of the finite ones


def learn_recall(
    kind: Cell,
    delay: int,
    *,
    d_hidden: int = 64,
    updates: int = 400,
    lr: float = 3e-3,
    clip_norm: float | None = 1.0,
    recurrent_scale: float = 1.0,
    sgd: bool = False,
    seed: int = 1,
) -> Recall:
    """Train a cell to recall a symbol after so many steps, and test it.

    recurrent_scale multiplies the recurrent matrix at the start, which is orthogonal.
    """
    torch.manual_seed(seed)
    model = Recaller(kind, d_hidden)
    with torch.no_grad():
        recurrent = model.cell.recurrent
        assert isinstance(recurrent, nn.Linear)
        recurrent.weight.mul_(recurrent_scale)
    optimizer: torch.optim.Optimizer
    optimizer = torch.optim.SGD(model.parameters(), lr) if sgd else torch.optim.Adam(model.parameters(), lr)
    return learn(model, delay, optimizer, updates=updates, clip_norm=clip_norm, seed=seed)


def learn(
    model: nn.Module,
    delay: int,
    optimizer: torch.optim.Optimizer,
    *,
    updates: int,
    clip_norm: float | None = 1.0,
    seed: int = 1,
) -> Recall:
    """Train any model of tokens [batch, 1 + delay] -> logits [batch, symbols] on the task, and test it."""
    generator = torch.Generator().manual_seed(seed)
    losses, norms = [], []
    for _ in range(updates):
        tokens, symbols = draw(64, delay, generator)
        loss = F.cross_entropy(model(tokens), symbols)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), clip_norm if clip_norm is not None else float("inf"))
        losses.append(loss.item())
        norms.append(norm.item())
        if norm.isfinite():
            optimizer.step()
    with torch.no_grad():
        tokens, symbols = draw(512, delay, generator)
        accuracy = (model(tokens).argmax(-1) == symbols).float().mean().item()
    finite = [norm for norm in norms if math.isfinite(norm)]
    return Recall(accuracy, all(map(math.isfinite, losses)), max(finite, default=math.inf))


def gradients_through_time(kind: Cell, steps: int, *, scale: float = 1.0, d: int = 64) -> list[float]:
    """The norm of d h_T / d h_0 for T = 1 … steps, of an untrained cell with small random inputs.

    Elman and linear cells: the spectral norm of the Jacobian, with a recurrent matrix of `scale` times an orthogonal
    one. Gated cells: the norm of the gradient of a random projection of the state, relative to that at T = 0; of an
    LSTM both of its states count.
    """
    torch.manual_seed(1)
    if kind == "elman" or kind == "linear":
        cell = ElmanCell(d, d, linear=kind == "linear").double()
        nn.init.orthogonal_(cell.recurrent.weight)
        jacobian, state, norms = torch.eye(d).double(), torch.zeros(1, d).double(), []
        weight = scale * cell.recurrent.weight.detach()
        for step in 0.5 * torch.randn(steps, 1, d).double():
            state = step + state @ weight.t()
            slope = torch.ones(d).double()
            if kind == "elman":
                state = torch.tanh(state)
                slope = (1 - state[0] ** 2).double()
            jacobian = slope[:, None] * (weight @ jacobian)
            norms.append(torch.linalg.matrix_norm(jacobian, 2).item())
        return norms
    model = Recaller(kind, d).double()
    inputs = model.cell.input(0.5 * torch.randn(steps, 1, d).double())  # type: ignore[operator]
    direction = F.normalize(torch.randn(1, d).double(), dim=-1)
    return [_gated_gradient(model, inputs[:length], direction) for length in range(1, steps + 1)]


def _gated_gradient(model: Recaller, inputs: Tensor, direction: Tensor) -> float:
    """|d (direction . h_T) / d (h_0, c_0)|."""
    start = torch.zeros(1, direction.size(1), dtype=torch.float64, requires_grad=True)
    cell, state = model.cell, start
    if isinstance(cell, GRUCell):
        for step in inputs:
            state = cell(step, state)
        (gradient,) = torch.autograd.grad((direction * state).sum(), start)
        return gradient.norm().item()
    assert isinstance(cell, LSTMCell)
    start_cell = torch.zeros_like(start, requires_grad=True)
    memory = start_cell
    for step in inputs:
        state, memory = cell(step, state, memory)
    found = torch.autograd.grad((direction * state).sum(), [start, start_cell])
    return torch.cat(found, dim=-1).norm().item()
