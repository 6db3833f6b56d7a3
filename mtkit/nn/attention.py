"""Scaled dot-product attention with several heads (Vaswani et al. 2017, §3.2), some of which may share their keys.

What a decoder must keep of each token and layer: h (d_k + d_v) numbers with one key and value for every head,
g (d_k + d_v) with g groups of heads that share one (Ainslie et al. 2023), d_k + d_v with one for all heads (Shazeer
2019), d_c with a latent vector from which they are made (DeepSeek-AI 2024).
"""

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
    """What is attended to: [batch, heads or groups, length, d_key] and [batch, heads or groups, length, d_head].

    Of latent attention the first holds the latent vectors, [batch, 1, length, d_latent], and the second has width 0.
    """

    keys: Tensor
    values: Tensor


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """[batch, length, heads * d] -> [batch, heads, length, d]"""
    batch, length, width = x.shape
    return x.view(batch, length, n_heads, width // n_heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[batch, heads, length, d_head] -> [batch, length, d_model]"""
    batch, n_heads, length, d_head = x.shape
    return x.transpose(1, 2).reshape(batch, length, n_heads * d_head)


def attention_weights(queries: Tensor, keys: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) in fp32: [batch, heads, queries, keys]; True in `mask` gets exactly 0 (eq. 1).

    Fewer keys than heads: the heads of a group stand next to each other. `scale` replaces 1 / sqrt(d_k).
    """
    scale = 1 / math.sqrt(queries.size(-1)) if scale is None else scale
    energy = _by_group(queries * scale, keys) @ keys.transpose(-2, -1)
    energy = energy.view(*queries.shape[:3], keys.size(2))
    if mask is not None:
        energy = energy.masked_fill(mask, -math.inf)
    return torch.softmax(energy, dim=-1, dtype=torch.float32)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """[batch, heads, queries, d_head], without a copy of values that several heads share."""
    context = _by_group(weights, values) @ values
    return context.view(*weights.shape[:3], values.size(3))


def _by_group(by_head: Tensor, shared: Tensor) -> Tensor:
    """Rows of one group's heads one after the other: [batch, heads, n, d] -> [batch, groups, heads / groups * n, d]."""
    if by_head.size(1) == shared.size(1):
        return by_head
    return by_head.reshape(by_head.size(0), shared.size(1), -1, by_head.size(3))


class MultiHeadAttention(nn.Module):
    """Concat(head_1, …, head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    The projections of queries, keys and values lie in one matrix each side needs: `query` [h d_key, d] and
    `key_value` [g d_key + g d_head, d], all with biases, as in the authors' parameter counts; g is the number of heads
    unless `n_groups` lets several heads share a key and a value. d_head = d / h is the width of a value, and of a query
    and a key too unless `d_key` says otherwise. `scaled=False` leaves the division by sqrt(d_k) out.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        *,
        n_groups: int | None = None,
        d_key: int | None = None,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.n_groups = n_groups or n_heads
        d_head = d_model // n_heads
        d_key = d_key or d_head
        self.scale = 1 / math.sqrt(d_key) if scaled else 1.0
        self.shared_sizes = (self.n_groups * d_key, self.n_groups * d_head)  # of all keys, of all values
        self.query = nn.Linear(d_model, n_heads * d_key)
        self.key_value = nn.Linear(d_model, sum(self.shared_sizes))
        self.output = nn.Linear(d_model, d_model)
        self.dropout = Dropout(dropout)
        for matrix in (self.query.weight, *self.key_value.weight.split(self.shared_sizes), self.output.weight):
            nn.init.xavier_uniform_(matrix)
        for linear in (self.query, self.key_value, self.output):
            nn.init.zeros_(linear.bias)

    def project_keys_values(self, x: Tensor) -> KeysValues:
        """Keys and values of what is attended to, x [batch, length, d_model]."""
        keys, values = self.key_value(x).split(self.shared_sizes, dim=-1)
        return KeysValues(split_heads(keys, self.n_groups), split_heads(values, self.n_groups))

    def project_queries(self, x: Tensor) -> Tensor:
        return split_heads(self.query(x), self.n_heads)

    def project_all(self, x: Tensor) -> tuple[Tensor, KeysValues]:
        """Queries, keys and values of one sequence in a single product."""
        weight = torch.cat([self.query.weight, self.key_value.weight])
        bias = torch.cat([self.query.bias, self.key_value.bias])
        sizes = (self.query.out_features, *self.shared_sizes)
        queries, keys, values = F.linear(x, weight, bias).split(sizes, dim=-1)
        memory = KeysValues(split_heads(keys, self.n_groups), split_heads(values, self.n_groups))
        return split_heads(queries, self.n_heads), memory

    def attend(
        self, queries: Tensor, memory: KeysValues, mask: Tensor | None, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Attend and mix the heads.

        Args:
            queries: [batch, heads, n, d_key]
            mask: broadcast to [batch, heads, n, length], True = may not be looked at.
            need_weights: also return the weights, averaged over the heads, [batch, n, length].
        """
        context, weights = self.context(queries, memory.keys, memory.values, mask, need_weights)
        mean_weights = weights.mean(1) if need_weights and weights is not None else None
        return self.output(join_heads(context)), mean_weights

    def context(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """[batch, heads, n, d_head] before W^O; the weights only where they were made."""
        plain = queries.device.type == "cpu" and max(queries.size(2), keys.size(2)) < _PLAIN_BELOW
        if plain or need_weights:
            weights = attention_weights(queries, keys, mask, self.scale)
            return weighted_sum(self.dropout(weights.to(values.dtype)), values), weights
        may_look = None if mask is None else ~mask
        dropout = self.dropout.p if self.training else 0.0
        shared = keys.size(1) != queries.size(1)
        context = F.scaled_dot_product_attention(
            queries, keys, values, may_look, dropout, scale=self.scale, enable_gqa=shared
        )
        return context, None


class LatentAttention(MultiHeadAttention):
    """Keys and values made from one latent vector a token, which is all that is kept (DeepSeek-AI 2024, §2.1.2).

    c = W_c x; head i has the keys U_i c and the values V_i c. Neither is ever made: q . U_i c = (U_i^T q) . c, so the
    heads attend to c itself, and V_i is applied to the context. Differs from the source: no separate positional part,
    no latent for the queries. `query` and `output` are those of MultiHeadAttention.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float = 0.0,
        *,
        d_latent: int,
        d_key: int | None = None,
        scaled: bool = True,
    ) -> None:
        super().__init__(d_model, n_heads, dropout, d_key=d_key, scaled=scaled)
        del self.key_value
        d_head = d_model // n_heads
        self.latent = nn.Linear(d_model, d_latent, bias=False)
        self.key = nn.Parameter(torch.empty(n_heads, d_key or d_head, d_latent))  # U_i
        self.value = nn.Parameter(torch.empty(n_heads, d_latent, d_head))  # V_i, transposed
        nn.init.xavier_uniform_(self.latent.weight)
        for made, width in ((self.key, self.query.out_features), (self.value, d_model)):
            bound = math.sqrt(6 / (d_latent + width))  # as xavier_uniform_ has it for all heads in one matrix
            nn.init.uniform_(made, -bound, bound)

    def project_keys_values(self, x: Tensor) -> KeysValues:
        latent = self.latent(x)[:, None]
        return KeysValues(latent, latent[..., :0])

    def project_all(self, x: Tensor) -> tuple[Tensor, KeysValues]:
        return self.project_queries(x), self.project_keys_values(x)

    def attend(
        self, queries: Tensor, memory: KeysValues, mask: Tensor | None, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        asked = torch.matmul(queries, self.key)  # [batch, heads, n, d_latent]
        context, weights = self.context(asked, memory.keys, memory.keys, mask, need_weights)
        mean_weights = weights.mean(1) if need_weights and weights is not None else None
        return self.output(join_heads(torch.matmul(context, self.value))), mean_weights
