"""The gated recurrent unit of Cho et al. (2014), the LSTM, and what recurrent translators build around them.

`GRUCell` and `LSTMCell` hold the weights; each answers for one step (search) and for a whole sequence (training).
Sequences are time first inside this file, `[len, batch, d]`, so that a time step is one contiguous block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from mtkit.nn.dropout import Dropout

sigmoid_backward = torch.ops.aten.sigmoid_backward
tanh_backward = torch.ops.aten.tanh_backward


def matmul_dtype(tensor: Tensor) -> torch.dtype:
    """The type of matrix products at this point: autocast's where autocast is on, else the tensor's own."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype


class ElmanCell(nn.Module):
    """The plain recurrent layer of Elman (1990), h' = tanh(W x + U h), or h' = W x + U h with `linear`.

    No translator is built from it: it is what the gates of `GRUCell` and `LSTMCell` are measured against. The Jacobian
    of a step is diag(1 - h'^2) U, and that of T linear steps is the T-th power of U: it vanishes or explodes.

    `input` is W with the only bias, `recurrent` is U.
    """

    def __init__(self, d_input: int, d_hidden: int, *, linear: bool = False) -> None:
        super().__init__()
        self.d_hidden = d_hidden
        self.input = nn.Linear(d_input, d_hidden)
        self.recurrent = nn.Linear(d_hidden, d_hidden, bias=False)
        self.is_linear = linear

    def forward(self, inputs: Tensor, state: Tensor) -> Tensor:
        """One step: `inputs` [batch, d_hidden] is W x + b, `state` [batch, d_hidden]; the next state."""
        after = inputs + self.recurrent(state)
        return after if self.is_linear else torch.tanh(after)


class GRUCell(nn.Module):
    """Gated recurrent unit as in Bahdanau et al. (2015), A.1.1-A.1.2, with an optional context vector.

    z = sigmoid(W_z e + U_z s + C_z c), r likewise, s~ = tanh(W e + U [r * s] + C c), s' = (1 - z) * s + z * s~.
    Differs from `torch.nn.GRU`: there z weighs the old state and r comes after the product.

    `input` is [W_z; W_r; W] with the only bias (the paper leaves biases out of its equations), `context` is
    [C_z; C_r; C], `recurrent` is [U_z; U_r; U].
    """

    context: nn.Linear | None

    def __init__(self, d_input: int, d_hidden: int, d_context: int | None = None) -> None:
        super().__init__()
        self.d_hidden = d_hidden
        self.input = nn.Linear(d_input, 3 * d_hidden)
        self.context = None if d_context is None else nn.Linear(d_context, 3 * d_hidden, bias=False)
        self.recurrent = nn.Linear(d_hidden, 3 * d_hidden, bias=False)

    def project(self, inputs: Tensor, context: Tensor) -> Tensor:
        """W e + C c, [..., 3 d_hidden]; `context` may lack leading dimensions of `inputs`."""
        assert self.context is not None
        return self.input(inputs) + self.context(context)

    def zero_state(self, batch: int) -> Tensor:
        """The state before an encoder's first token, [batch, d_hidden]."""
        return self.recurrent.weight.new_zeros(batch, self.d_hidden)

    def forward(self, inputs: Tensor, state: Tensor) -> Tensor:
        """One step: `inputs` [batch, 3 d_hidden] is W e + C c, `state` [batch, d_hidden]; the next state."""
        of_gates, of_candidate = self.recurrent.weight.split([2 * self.d_hidden, self.d_hidden])
        input_gates, input_candidate = inputs.split([2 * self.d_hidden, self.d_hidden], dim=-1)
        update, reset = torch.sigmoid(input_gates + functional.linear(state, of_gates)).chunk(2, dim=-1)
        candidate = torch.tanh(input_candidate + functional.linear(reset * state, of_candidate))
        return torch.lerp(state, candidate.to(state.dtype), update.to(state.dtype))

    def scan(self, inputs: Tensor, state: Tensor, pad_mask: Tensor | None = None, *, reverse: bool = False) -> Tensor:
        """All states of a sequence, [len, batch, d_hidden]; entry t is the state after reading entry t.

        `inputs` [len, batch, 3 d_hidden] is W e + C c, `state` [batch, d_hidden] comes before the first step. The
        state passes unchanged over padding, `pad_mask` [batch, len], True = padding; so with `reverse` (last entry
        first) reading begins at the last real token, and the last state of a forward scan is that of the last token.
        """
        dtype = matmul_dtype(inputs)
        is_real = None if pad_mask is None else (~pad_mask).t()[:, :, None].to(dtype)
        return _Scan.apply(inputs.to(dtype), state, self.recurrent.weight.to(dtype), is_real, reverse)


class _Scan(torch.autograd.Function):
    """`GRUCell.forward` over time, with the gradient by hand.

    Autograd would make a weight gradient at every time step and add them up; here one product over all steps makes
    it, which is faster and, in bf16, sums in full precision.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, state: Tensor, weight: Tensor, is_real: Tensor | None, reverse: bool
    ) -> Tensor:
        n_steps, batch, _ = inputs.shape
        d_hidden = weight.shape[1]
        of_gates, of_candidate = weight[: 2 * d_hidden].t(), weight[2 * d_hidden :].t()
        gates = inputs.new_empty(n_steps, batch, 2 * d_hidden)
        candidates = inputs.new_empty(n_steps, batch, d_hidden)
        states = state.new_empty(n_steps, batch, d_hidden)
        initial = state
        with torch.autocast(inputs.device.type, enabled=False):
            for t in _order(n_steps, reverse):
                narrow = state.to(inputs.dtype)
                torch.addmm(inputs[t, :, : 2 * d_hidden], narrow, of_gates, out=gates[t]).sigmoid_()
                update, reset = gates[t].chunk(2, dim=-1)
                if is_real is not None:
                    update *= is_real[t]  # padding: z = 0 keeps the old state exactly, and stops the gradient
                torch.addmm(inputs[t, :, 2 * d_hidden :], reset * narrow, of_candidate, out=candidates[t]).tanh_()
                state = torch.lerp(state, candidates[t].to(state.dtype), update.to(state.dtype), out=states[t])
        ctx.save_for_backward(initial, weight, gates, candidates, states)
        ctx.reverse = reverse
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor | None, ...]:
        initial, weight, gates, candidates, states = ctx.saved_tensors
        n_steps, batch, d_hidden = states.shape
        of_gates, of_candidate = weight.split([2 * d_hidden, d_hidden])
        d_inputs = gates.new_empty(n_steps, batch, 3 * d_hidden)
        before = _previous_states(initial, states, reverse=ctx.reverse)
        with torch.autocast(states.device.type, enabled=False):
            d_state = torch.zeros_like(initial)
            for t in reversed(_order(n_steps, ctx.reverse)):
                d_next = d_state + d_states[t]
                d_state = step_backward(d_next, before[t], gates[t], candidates[t], of_candidate, d_inputs[t])
                d_state += torch.mm(d_inputs[t, :, : 2 * d_hidden], of_gates).to(d_state.dtype)
            narrow = before.to(weight.dtype)
            reset_states = gates[..., d_hidden:] * narrow
            d_weight = torch.cat(
                [
                    weight_gradient(d_inputs[..., : 2 * d_hidden], narrow),
                    weight_gradient(d_inputs[..., 2 * d_hidden :], reset_states),
                ]
            )
        return d_inputs, d_state, d_weight, None, None


class LSTMCell(nn.Module):
    """Long short-term memory as in Zaremba et al. (2014), eq. 4: no peepholes, gates i, f, g, o in this order.

    i, f, o = sigmoid(W x + U h), g = tanh(W x + U h), c' = f * c + i * g, h' = o * tanh(c').

    `input` is [W_i; W_f; W_g; W_o] with the only bias, `recurrent` is [U_i; U_f; U_g; U_o].
    """

    def __init__(self, d_input: int, d_hidden: int) -> None:
        super().__init__()
        self.d_hidden = d_hidden
        self.input = nn.Linear(d_input, 4 * d_hidden)
        self.recurrent = nn.Linear(d_hidden, 4 * d_hidden, bias=False)

    def zero_state(self, batch: int) -> Tensor:
        """The hidden state, or the cell, before an encoder's first token: [batch, d_hidden]."""
        return self.recurrent.weight.new_zeros(batch, self.d_hidden)

    def forward(self, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step: `inputs` [batch, 4 d_hidden] is W x + b; the next hidden state and cell, [batch, d_hidden] each."""
        return lstm_step(inputs + self.recurrent(hidden), cell)

    def scan(
        self, inputs: Tensor, hidden: Tensor, cell: Tensor, pad_mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Hidden states and cells of a sequence, [len, batch, d_hidden] each; entry t stands after entry t was read.

        `inputs` [len, batch, 4 d_hidden] is W x + b. Both pass unchanged over padding, `pad_mask` [batch, len], True =
        padding; so with `reverse` (last entry first) reading begins at the last real token.
        """
        dtype = matmul_dtype(inputs)
        is_real = None if pad_mask is None else (~pad_mask).t()[:, :, None].to(cell.dtype)
        return _LSTMScan.apply(inputs.to(dtype), hidden, cell, self.recurrent.weight.to(dtype), is_real, reverse)


def lstm_step(inputs: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The gates' part of a step: `inputs` [batch, 4 d_hidden] is W x + U h + b; the next hidden state and cell."""
    return _LSTMStep.apply(inputs, cell)


class _LSTMStep(torch.autograd.Function):
    """`lstm_step` as one node of the graph instead of eleven: a decoder that cannot scan runs it at every step."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = inputs.to(cell.dtype).chunk(4, dim=-1)
        gates = torch.cat([torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)], dim=-1)
        i, f, g, o = gates.chunk(4, dim=-1)
        after = (f * cell).addcmul_(i, g)
        ctx.save_for_backward(gates, cell, after)
        ctx.dtype = inputs.dtype
        return o * torch.tanh(after), after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_hidden: Tensor, d_cell: Tensor) -> tuple[Tensor, Tensor]:
        gates, before, after = ctx.saved_tensors
        d_inputs = torch.empty_like(gates, dtype=ctx.dtype)
        return d_inputs, lstm_step_backward(d_hidden, d_cell, before, after, gates, d_inputs)


class _LSTMScan(torch.autograd.Function):
    """`LSTMCell.forward` over time, with the gradient by hand, for the reasons of `_Scan`."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, is_real: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        n_steps, batch, _ = inputs.shape
        d_hidden = weight.shape[1]
        gates = torch.empty_like(inputs)
        hiddens = cell.new_empty(n_steps, batch, d_hidden)
        cells = torch.empty_like(hiddens)
        first = (hidden, cell)
        transposed = weight.t()
        with torch.autocast(inputs.device.type, enabled=False):
            for t in _order(n_steps, reverse):
                torch.addmm(inputs[t], hidden.to(inputs.dtype), transposed, out=gates[t])
                i, f, g, o = gates[t].chunk(4, dim=-1)
                g.tanh_()
                for gate in (gates[t, :, : 2 * d_hidden], o):
                    gate.sigmoid_()
                new_cell = torch.mul(f, cell, out=cells[t]).addcmul_(i, g)
                new_hidden = torch.mul(o, torch.tanh(new_cell), out=hiddens[t])
                if is_real is not None:
                    torch.lerp(cell, new_cell, is_real[t].expand_as(cell), out=cells[t])
                    torch.lerp(hidden, new_hidden, is_real[t].expand_as(cell), out=hiddens[t])
                hidden, cell = hiddens[t], cells[t]
        ctx.save_for_backward(*first, weight, is_real, gates, hiddens, cells)
        ctx.reverse = reverse
        return hiddens, cells

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_hiddens: Tensor, d_cells: Tensor) -> tuple[Tensor | None, ...]:
        first_hidden, first_cell, weight, is_real, gates, hiddens, cells = ctx.saved_tensors
        n_steps, batch, d_hidden = cells.shape
        d_inputs = torch.empty_like(gates)
        hidden_before = _previous_states(first_hidden, hiddens, reverse=ctx.reverse)
        cell_before = _previous_states(first_cell, cells, reverse=ctx.reverse)
        with torch.autocast(cells.device.type, enabled=False):
            d_hidden_next, d_cell_next = torch.zeros_like(first_hidden), torch.zeros_like(first_cell)
            for t in reversed(_order(n_steps, ctx.reverse)):
                d_hidden_all, d_cell_all = d_hidden_next + d_hiddens[t], d_cell_next + d_cells[t]
                d_new_hidden, d_new_cell = d_hidden_all, d_cell_all
                if is_real is not None:
                    d_new_hidden, d_new_cell = d_hidden_all * is_real[t], d_cell_all * is_real[t]
                d_cell_next = lstm_step_backward(
                    d_new_hidden, d_new_cell, cell_before[t], cells[t], gates[t], d_inputs[t]
                )
                d_hidden_next = torch.mm(d_inputs[t], weight).to(d_hidden_next.dtype)
                if is_real is not None:  # what passed over padding goes back the same way
                    d_cell_next += d_cell_all - d_new_cell
                    d_hidden_next += d_hidden_all - d_new_hidden
            d_weight = weight_gradient(d_inputs, hidden_before.to(weight.dtype))
        return d_inputs, d_hidden_next, d_cell_next, d_weight, None, None


def lstm_step_backward(
    d_hidden: Tensor, d_cell: Tensor, cell_before: Tensor, cell: Tensor, gates: Tensor, d_inputs: Tensor
) -> Tensor:
    """Gradient of one LSTM step from those of its hidden state and its cell, [batch, d_hidden] each.

    `gates` [batch, 4 d_hidden] are i, f, g, o after their activations. Writes the gradient of the step's inputs to
    `d_inputs`, like `gates`, and returns that of the cell before.
    """
    i, f, g, o = gates.to(cell.dtype).chunk(4, dim=-1)
    d_i, d_f, d_g, d_o = d_inputs.chunk(4, dim=-1)
    squashed = torch.tanh(cell)
    d_o.copy_(sigmoid_backward(d_hidden * squashed, o))
    d_cell = d_cell + tanh_backward(d_hidden * o, squashed)
    d_i.copy_(sigmoid_backward(d_cell * g, i))
    d_f.copy_(sigmoid_backward(d_cell * cell_before, f))
    d_g.copy_(tanh_backward(d_cell * i, g))
    return d_cell * f


class LSTMStates(NamedTuple):
    """What a stack of LSTM layers carries from one token to the next."""

    hidden: Tensor  # [batch, layers, d_hidden]
    cell: Tensor  # [batch, layers, d_hidden]


class LSTMStack(nn.Module):
    """LSTM layers upon each other, with dropout on what a layer reads from below and never on what it carries along
    (Zaremba et al. 2014, §3.1). Dropout on the top layer's output is the caller's, who knows what reads it.
    """

    def __init__(self, d_input: int, d_hidden: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        sizes = [d_input] + [d_hidden] * (n_layers - 1)
        self.layers = cast("Sequence[LSTMCell]", nn.ModuleList([LSTMCell(size, d_hidden) for size in sizes]))
        self.dropout = Dropout(dropout)

    def zero_states(self, batch: int) -> LSTMStates:
        """The states before an encoder's first token."""
        zeros = self.layers[0].zero_state(batch)[:, None].expand(-1, len(self.layers), -1)
        return LSTMStates(zeros, zeros)

    def scan(
        self, x: Tensor, states: LSTMStates, pad_mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, LSTMStates]:
        """Read a whole sequence, x [len, batch, d_input]: all states of the top layer, [len, batch, d_hidden], in the
        order of x, and every layer's states after the last token read; see `LSTMCell.scan` for the rest.
        """
        last = 0 if reverse else -1
        hidden_after, cell_after = [], []
        for layer, hidden, cell in zip(self.layers, states.hidden.unbind(1), states.cell.unbind(1), strict=True):
            x, cells = layer.scan(layer.input(self.dropout(x)), hidden, cell, pad_mask, reverse=reverse)
            hidden_after.append(x[last])
            cell_after.append(cells[last])
        return x, LSTMStates(torch.stack(hidden_after, dim=1), torch.stack(cell_after, dim=1))

    def forward(self, x: Tensor, states: LSTMStates) -> tuple[Tensor, LSTMStates]:
        """Read one token, x [batch, d_input]: the top layer's state [batch, d_hidden], and all states."""
        hidden_after, cell_after = [], []
        for layer, hidden, cell in zip(self.layers, states.hidden.unbind(1), states.cell.unbind(1), strict=True):
            x, cell = layer(layer.input(self.dropout(x)), hidden, cell)
            hidden_after.append(x)
            cell_after.append(cell)
        return x, LSTMStates(torch.stack(hidden_after, dim=1), torch.stack(cell_after, dim=1))


def _order(n_steps: int, reverse: bool) -> range:
    return range(n_steps - 1, -1, -1) if reverse else range(n_steps)


def _previous_states(initial: Tensor, states: Tensor, *, reverse: bool = False) -> Tensor:
    """The state before each step, [len, batch, d_hidden], from the state after each step."""
    return torch.cat([states, initial[None]])[1:] if reverse else torch.cat([initial[None], states])[: len(states)]


def step_backward(
    d_next: Tensor, state: Tensor, gates: Tensor, candidate: Tensor, of_candidate: Tensor, d_inputs: Tensor
) -> Tensor:
    """Gradient of one GRU step from that of its result, `d_next` [batch, d_hidden].

    Writes the gradient of the step's inputs to `d_inputs` [batch, 3 d_hidden] and returns that of `state`, less its
    way through z and r: this product is the caller's, who may have more to multiply with the state's weights.
    """
    update, reset = gates.to(state.dtype).chunk(2, dim=-1)
    candidate = candidate.to(state.dtype)
    d_update, d_reset, d_candidate = d_inputs.chunk(3, dim=-1)
    d_candidate.copy_(tanh_backward(d_next * update, candidate))
    d_update.copy_(sigmoid_backward(d_next * (candidate - state), update))
    d_reset_state = torch.mm(d_candidate, of_candidate).to(state.dtype)
    d_reset.copy_(sigmoid_backward(d_reset_state * state, reset))
    return torch.addcmul(d_next, d_next, update, value=-1).addcmul_(d_reset_state, reset)


def weight_gradient(d_products: Tensor, factors: Tensor) -> Tensor:
    """Gradient of a weight matrix [d_out, d_in] over all steps: [len, batch, d_out] and [len, batch, d_in]."""
    return torch.mm(d_products.flatten(0, 1).t(), factors.flatten(0, 1))


class MaxoutReadout(nn.Module):
    """Deep output of Bahdanau et al. (2015), A.2.2: t~ = U_o s_{i-1} + V_o E y_{i-1} + C_o c_i, then maxout over pairs.

    The state is the one before this step, as the paper prints it. `state` carries the only bias.
    """

    def __init__(self, d_state: int, d_embedding: int, d_context: int, d_maxout: int) -> None:
        super().__init__()
        self.state = nn.Linear(d_state, 2 * d_maxout)
        self.embedding = nn.Linear(d_embedding, 2 * d_maxout, bias=False)
        self.context = nn.Linear(d_context, 2 * d_maxout, bias=False)

    def forward(self, state: Tensor, embedding: Tensor, context: Tensor) -> Tensor:
        """[..., d_maxout]; `context` may broadcast over the leading dimensions of the others."""
        pairs = self.state(state) + self.embedding(embedding) + self.context(context)
        return torch.maximum(pairs[..., 0::2], pairs[..., 1::2])


Scheme = Literal["paper", "xavier", "uniform"]


def initialize(model: nn.Module, scheme: Scheme, bound: float = 0.0) -> None:
    """Draw all weights of a recurrent translator; the embedding's row of padding is 0 in every scheme.

    - paper: N(0, 0.01^2) (Bahdanau et al. 2015, B.1), recurrent matrices orthogonal, biases 0.
    - xavier: Glorot and Bengio (2010) for matrices, a cell's gates apart, recurrent matrices orthogonal, biases 0, and
      N(0, 1) for embeddings: each layer halves the scale of what it reads and more, and a stack of two LSTMs that
      starts from embeddings of N(0, 1/d) spends hundreds of updates before its states tell one source from another.
    - uniform: all from U[-bound, bound], biases too (Sutskever et al. 2014, §3.4; Luong et al. 2015, §4.1).
    """
    if scheme == "uniform":
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -bound, bound)
    for module in model.modules():
        if isinstance(module, nn.Linear) and scheme != "uniform":
            if scheme == "paper":
                nn.init.normal_(module.weight, std=0.01)
            else:
                nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            if scheme != "uniform":
                nn.init.normal_(module.weight, std=0.01 if scheme == "paper" else 1.0)
            if module.padding_idx is not None:
                with torch.no_grad():
                    module.weight[module.padding_idx].zero_()
    if scheme == "uniform":
        return
    for module in model.modules():
        if isinstance(module, (ElmanCell, GRUCell, LSTMCell)):
            n_gates = module.recurrent.out_features // module.d_hidden
            for gate in module.recurrent.weight.chunk(n_gates):
                nn.init.orthogonal_(gate)
            if scheme == "xavier":
                for linear in (module.input, getattr(module, "context", None)):
                    for gate in () if linear is None else linear.weight.chunk(n_gates):
                        nn.init.xavier_uniform_(gate)
