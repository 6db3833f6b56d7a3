"""Scaled dot-product attention with several heads (Vaswani et al. 2017, §3.2)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtkit.nn.dropout import Dropout

# Below this many positions the plain products train faster on a CPU than the fused kernel, whose backward is
# written for long sequences (measured in tests/benchmarks/training_speed.py).
_PLAIN_BELOW = 128


class KeysValues(NamedTuple):
    """What is attended to, split into heads: two tensors [batch, heads, length, d_head]."""

    keys: Tensor
    values: Tensor


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """[batch, length, d_model] -> [batch, heads, length, d_head]"""
    batch, length, d_model = x.shape
    return x.view(batch, length, n_heads, d_model // n_heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[batch, heads, length, d_head] -> [batch, length, d_model]"""
    batch, n_heads, length, d_head = x.shape
    return x.transpose(1, 2).reshape(batch, length, n_heads * d_head)


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) in fp32: [batch, heads, queries, keys]; True in `mask` gets exactly 0 (eq. 1)."""
    energy = (queries * (1 / math.sqrt(queries.size(-1)))) @ keys.transpose(-2, -1)
    if mask is not None:
        energy = energy.masked_fill(mask, -math.inf)
    return torch.softmax(energy, dim=-1, dtype=torch.float32)


class MultiHeadAttention(nn.Module):
    """Concat(head_1, …, head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    The projections of queries, keys and values lie in one matrix each side needs: `query` [d, d] and
    `key_value` [2d, d], all with biases, as in the authors' parameter counts.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key_value = nn.Linear(d_model, 2 * d_model)
        self.output = nn.Linear(d_model, d_model)
        self.dropout = Dropout(dropout)
        for matrix in (self.query.weight, *self.key_value.weight.chunk(2), self.output.weight):
            nn.init.xavier_uniform_(matrix)
        for linear in (self.query, self.key_value, self.output):
            nn.init.zeros_(linear.bias)

    def project_keys_values(self, x: Tensor) -> KeysValues:
        """Keys and values of what is attended to, x [batch, length, d_model]."""
        keys, values = self.key_value(x).chunk(2, dim=-1)
        return KeysValues(split_heads(keys, self.n_heads), split_heads(values, self.n_heads))

    def project_queries(self, x: Tensor) -> Tensor:
        return split_heads(self.query(x), self.n_heads)

    def project_all(self, x: Tensor) -> tuple[Tensor, KeysValues]:
        """Queries, keys and values of one sequence in a single product."""
        weight = torch.cat([self.query.weight, self.key_value.weight])
        bias = torch.cat([self.query.bias, self.key_value.bias])
        queries, keys, values = F.linear(x, weight, bias).chunk(3, dim=-1)
        split = [split_heads(part, self.n_heads) for part in (queries, keys, values)]
        return split[0], KeysValues(split[1], split[2])

    def attend(
        self, queries: Tensor, memory: KeysValues, mask: Tensor | None, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend and mix the heads.

        Args:
            queries: [batch, heads, n, d_head]
            mask: broadcast to [batch, heads, n, length], True = may not be looked at.
            need_weights: also return the weights, averaged over the heads, [batch, n, length].
        """
        keys, values = memory
        plain = queries.device.type == "cpu" and max(queries.size(2), keys.size(2)) < _PLAIN_BELOW
        if plain or need_weights:
            weights = attention_weights(queries, keys, mask)
            context = self.dropout(weights.to(values.dtype)) @ values
        else:
            weights = None
            may_look = None if mask is None else ~mask
            dropout = self.dropout.p if self.training else 0.0
            context = F.scaled_dot_product_attention(queries, keys, values, may_look, dropout)
        mean_weights = weights.mean(1) if need_weights and weights is not None else None
        return self.output(join_heads(context)), mean_weights
