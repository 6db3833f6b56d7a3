"""Additive attention of Bahdanau et al. (2015): one step of it, and a whole decoder scan with it for training."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mtkit.nn.recurrent import (
    GRUCell,
    matmul_dtype,
    step_backward,
    weight_gradient,
)


class AdditiveAttention(nn.Module):
    """e_ij = v_a^T tanh(W_a s_{i-1} + U_a h_j), then a softmax over the source positions j.

    `query` is W_a, `key` is U_a with the only bias, `energy` is v_a. Query and memory may differ in width.
    """

    def __init__(self, d_query: int, d_memory: int, d_attention: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_attention, bias=False)
        self.key = nn.Linear(d_memory, d_attention)
        self.energy = nn.Linear(d_attention, 1, bias=False)

    def initialize(self, scheme: Literal["paper", "xavier"]) -> None:
        """Draw the weights; paper: v_a = 0 and N(0, 0.001^2) (Bahdanau et al. 2015, B.1)."""
        for linear in (self.query, self.key):
            if scheme == "paper":
                nn.init.normal_(linear.weight, std=0.001)
            else:
                nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.key.bias)
        if scheme == "paper":
            nn.init.zeros_(self.energy.weight)
        else:
            nn.init.xavier_uniform_(self.energy.weight)

    def keys(self, memory: Tensor) -> Tensor:
        """U_a h_j for all j, [batch, src_len, d_attention]: the same at every step, so computed once a sentence."""
        return self.key(memory).to(self.key.weight.dtype)

    def forward(self, query: Tensor, memory: Tensor, keys: Tensor, pad_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Context vectors [rows, d_memory] and attention [rows, src_len] of `query` [rows, d_query].

        `memory` [batch, src_len, d_memory] and `pad_mask` (True = padding) may have k times fewer rows than `query`:
        query row i looks at memory row i // k, and no memory is copied.
        """
        batch, src_len, d_memory = memory.shape
        queries = self.query(query).view(batch, -1, 1, keys.shape[-1])  # [batch, k, 1, d_attention]
        with torch.autocast(keys.device.type, enabled=False):
            # [batch, k, src_len], less a constant that the softmax cancels
            energies = torch.matmul(_half_tanh(queries, keys[:, None]), 2 * self.energy.weight[0])
        weights = energies.masked_fill(pad_mask[:, None], -torch.inf).softmax(dim=-1)
        context = torch.bmm(weights.to(memory.dtype), memory)
        return context.view(-1, d_memory), weights.view(-1, src_len)


def attentive_scan(
    cell: GRUCell,
    attention: AdditiveAttention,
    inputs: Tensor,
    state: Tensor,
    memory: Tensor,
    keys: Tensor,
    pad_mask: Tensor,
) -> tuple[Tensor, Tensor]:
    """A decoder under teacher forcing: attend with s_{i-1}, then one GRU step with the context, over all i.

    `inputs` [trg_len - 1, batch, 3 d_hidden] is W e without the context's part; the state after the last token is not
    computed, for nothing depends on it. `state` [batch, d_hidden] is s_0, the rest as in `AdditiveAttention`.

    Returns s_{i-1} [trg_len, batch, d_hidden] and c_i [trg_len, batch, d_memory].
    """
    assert cell.context is not None
    dtype = matmul_dtype(inputs)
    d_gates = 2 * cell.d_hidden
    of_gates, of_candidate = cell.recurrent.weight.split([d_gates, cell.d_hidden])
    return _AttentiveScan.apply(
        inputs.to(dtype),
        state,
        memory.to(dtype),
        keys,
        pad_mask,
        attention.energy.weight.view(-1),
        torch.cat([attention.query.weight, of_gates]).to(dtype),  # all that multiplies the bare state, in one product
        of_candidate.to(dtype),
        cell.context.weight.to(dtype),
    )


class _AttentiveScan(torch.autograd.Function):
    """The loop of `attentive_scan` with the gradient by hand.

    - tanh(query + keys), [batch, src_len, d_attention], is computed again in the backward pass instead of kept for
      every step: it would be trg_len times as large as all keys.
    - Weight and memory gradients are one product over all steps.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        state: Tensor,
        memory: Tensor,
        keys: Tensor,
        pad_mask: Tensor,
        energy: Tensor,
        of_state: Tensor,
        of_candidate: Tensor,
        of_context: Tensor,
    ) -> tuple[Tensor, Tensor]:
        n_steps = len(inputs) + 1
        batch, src_len, d_attention = keys.shape
        d_hidden = state.shape[1]
        states = state.new_empty(n_steps, batch, d_hidden)
        contexts = memory.new_empty(n_steps, batch, memory.shape[2])
        weights = keys.new_empty(n_steps, batch, src_len)
        gates = memory.new_empty(n_steps - 1, batch, 2 * d_hidden)
        candidates = memory.new_empty(n_steps - 1, batch, d_hidden)
        half_tanh = torch.empty_like(keys)
        states[0] = state
        with torch.autocast(inputs.device.type, enabled=False):
            for t in range(n_steps):
                narrow = states[t].to(memory.dtype)
                query, from_state = torch.mm(narrow, of_state.t()).split([d_attention, 2 * d_hidden], dim=-1)
                _half_tanh(query[:, None], keys, out=half_tanh)
                energies = torch.mv(half_tanh.view(-1, d_attention), 2 * energy).view(batch, src_len)
                weights[t] = energies.masked_fill_(pad_mask, -torch.inf).softmax(dim=-1)
                torch.bmm(weights[t, :, None].to(memory.dtype), memory, out=contexts[t, :, None])
                if t == n_steps - 1:
                    break
                with_context = torch.addmm(inputs[t], contexts[t], of_context.t())
                torch.add(with_context[:, : 2 * d_hidden], from_state, out=gates[t]).sigmoid_()
                update, reset = gates[t].chunk(2, dim=-1)
                torch.addmm(
                    with_context[:, 2 * d_hidden :], reset * narrow, of_candidate.t(), out=candidates[t]
                ).tanh_()
                torch.lerp(states[t], candidates[t].to(state.dtype), update.to(state.dtype), out=states[t + 1])
        ctx.save_for_backward(
            memory, keys, energy, of_state, of_candidate, of_context, states, contexts, weights, gates, candidates
        )
        return states, contexts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_contexts: Tensor) -> tuple[Tensor | None, ...]:
        (memory, keys, energy, of_state, of_candidate, of_context, states, contexts, weights, gates, candidates) = (
            ctx.saved_tensors
        )
        n_steps, batch, d_hidden = states.shape
        d_attention = keys.shape[2]
        wide, narrow = states.dtype, memory.dtype
        # One row per step: gradients of query, update gate, reset gate and candidate, side by side.
        d_all = memory.new_zeros(n_steps, batch, d_attention + 3 * d_hidden)
        d_inputs = d_all[:-1, :, d_attention:]
        d_contexts = d_contexts.to(narrow, copy=True)
        d_keys = torch.zeros_like(keys)
        d_energy = torch.zeros_like(energy)
        half_tanh = torch.empty_like(keys)
        slope = 4 * energy  # d tanh(x) / dx = 4 sigmoid(2x) (1 - sigmoid(2x)), times v_a
        with torch.autocast(states.device.type, enabled=False):
            d_state = torch.zeros_like(states[0])
            for t in reversed(range(n_steps)):
                if t < n_steps - 1:
                    d_state = step_backward(d_state, states[t], gates[t], candidates[t], of_candidate, d_inputs[t])
                    d_contexts[t].addmm_(d_inputs[t], of_context)
                d_weights = torch.bmm(d_contexts[t, :, None], memory.transpose(1, 2)).squeeze(1).to(wide)
                d_energies = weights[t] * (d_weights - (weights[t] * d_weights).sum(dim=-1, keepdim=True))
                query = torch.mm(states[t].to(narrow), of_state[:d_attention].t())
                _half_tanh(query[:, None], keys, out=half_tanh)
                d_energy.addmv_(half_tanh.view(-1, d_attention).t(), d_energies.view(-1))
                torch.addcmul(half_tanh, half_tanh, half_tanh, value=-1, out=half_tanh)
                d_query = torch.bmm(d_energies[:, None], half_tanh).squeeze(1) * slope
                d_keys.addcmul_(d_energies[:, :, None], half_tanh)
                d_all[t, :, :d_attention] = d_query
                d_state += torch.mm(d_all[t, :, : d_attention + 2 * d_hidden], of_state).to(wide)
                d_state += d_states[t]
            narrow_states = states.to(narrow)
            reset_states = gates[..., d_hidden:] * narrow_states[:-1]
            d_of_state = weight_gradient(d_all[..., : d_attention + 2 * d_hidden], narrow_states)
            d_of_candidate = weight_gradient(d_inputs[..., 2 * d_hidden :], reset_states)
            d_of_context = weight_gradient(d_inputs, contexts[:-1])
            d_memory = torch.bmm(weights.to(narrow).permute(1, 2, 0), d_contexts.transpose(0, 1))
        return (
            d_inputs,
            d_state,
            d_memory,
            d_keys * slope,
            None,
            2 * d_energy,
            d_of_state,
            d_of_candidate,
            d_of_context,
        )


def _half_tanh(query: Tensor, keys: Tensor, *, out: Tensor | None = None) -> Tensor:
    """(tanh(query + keys) + 1) / 2, which is sigmoid(2 (query + keys)), in the wider type of `keys`.

    torch's sigmoid takes a sixth of the time of its tanh (x86, float32), and this is the largest tensor of the model.
    An energy v . tanh(x) is then 2 v . sigmoid(2x) less the sum of v, which the softmax cancels.
    """
    return torch.add(2 * query.to(keys.dtype), keys, alpha=2, out=out).sigmoid_()
