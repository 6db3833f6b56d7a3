"""How far back recurrent cells remember: gradients through time, and a recall task that is learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtkit.nn.recurrent import ElmanCell, GRUCell, LSTMCell, initialize

Cell = Literal["linear", "elman", "gru", "lstm"]
N_SYMBOLS = 8


class Recaller(nn.Module):
    """Reads one symbol, then noise, and says which symbol it was: one cell, one output layer.

    The forget gate of an LSTM starts with a bias of 1 (Jozefowicz et al. 2015).
    """

    def __init__(self, kind: Cell, d_hidden: int) -> None:
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
                self.cell.input.bias[d_hidden : 2 * d_hidden] = 1.0

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
    """The spectral norm of d s_T / d s_0 for T = 1 … steps, of an untrained cell with small random inputs.

    s is the state, of an LSTM both of its states. The recurrent matrix of Elman and linear cells is `scale` times an
    orthogonal one; gated cells are as they begin.
    """
    torch.manual_seed(1)
    advance, inputs, width = _recurrence(kind, steps, scale, d)
    state, unit = torch.zeros(1, width).double(), torch.eye(width).double()
    whole, norms = unit, []
    for step in inputs:
        rows = state.repeat(width, 1).requires_grad_()  # one for each row of the step's Jacobian
        after = advance(step.expand(width, -1), rows)
        (jacobian,) = torch.autograd.grad(after, rows, grad_outputs=unit)
        whole, state = jacobian @ whole, after[:1].detach()
        norms.append(torch.linalg.matrix_norm(whole, 2).item())
    return norms


def _recurrence(kind: Cell, steps: int, scale: float, d: int) -> tuple[Callable[[Tensor, Tensor], Tensor], Tensor, int]:
    """How a cell goes on, (input, state [batch, width]) -> state; its inputs [steps, 1, …]; the width of a state."""
    if kind in ("linear", "elman"):
        plain = ElmanCell(d, d, linear=kind == "linear").double()
        nn.init.orthogonal_(plain.recurrent.weight)
        with torch.no_grad():
            plain.recurrent.weight.mul_(scale)
        return plain, 0.5 * torch.randn(steps, 1, d).double(), d
    cell = Recaller(kind, d).double().cell
    inputs = cell.input(0.5 * torch.randn(steps, 1, d).double()).detach()  # type: ignore[operator]
    if isinstance(cell, GRUCell):
        return cell, inputs, d
    return (lambda step, state: torch.cat(cell(step, *state.chunk(2, dim=-1)), dim=-1)), inputs, 2 * d
