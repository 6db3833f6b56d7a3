"""A symbol recalled over a distance by recurrence, by convolution and by self-attention."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from mtkit.analyze.layers import SelfAttentionLayer
from mtkit.analyze.memory_span import N_SYMBOLS, learn
from mtkit.nn.convolution import GatedConvolution
from mtkit.nn.embedding import SinusoidalPositions
from mtkit.nn.recurrent import GRUCell, initialize

Family = Literal["recurrence", "convolution", "attention"]
N_CONVOLUTIONS, KERNEL = 6, 5
FIELD = N_CONVOLUTIONS * (KERNEL - 1) + 1
"""Tokens that the convolutions' last state sees: 25, as six blocks of the paper do (Gehring et al. 2017, §3.2)."""


class Stack(nn.Module):
    """Reads tokens [batch, length], ends in logits [batch, symbols] from the last position.

    recurrence: one layer of GRU; convolution: six causal gated blocks of kernel 5 with residual sums; attention: one
    layer with one head, a residual sum and sinusoidal positions.
    """

    def __init__(self, family: Family, d: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2 * N_SYMBOLS, d)  # symbols, then noise
        self.positions = SinusoidalPositions(d) if family == "attention" else nn.Identity()
        self.cell = GRUCell(d, d) if family == "recurrence" else None
        layers: dict[Family, list[nn.Module]] = {
            "recurrence": [],
            "convolution": [GatedConvolution(d, d, KERNEL, causal=True) for _ in range(N_CONVOLUTIONS)],
            "attention": [SelfAttentionLayer(d)],
        }
        self.layers = nn.ModuleList(layers[family])
        self.output = nn.Linear(d, N_SYMBOLS)
        if self.cell is not None:
            initialize(self, "xavier")

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.positions(self.embedding(tokens))
        if self.cell is not None:
            inputs = self.cell.input(x.transpose(0, 1))
            return self.output(self.cell.scan(inputs, self.cell.zero_state(len(tokens)))[-1])
        for layer in self.layers:
            x = (x + layer(x)) * math.sqrt(0.5)
        return self.output(x[:, -1])


def accuracy_at_distance(family: Family, distance: int, *, d: int = 64, updates: int = 400, seed: int = 1) -> float:
    """Share of symbols that are recalled so many tokens later, on new sequences, after training on that distance."""
    torch.manual_seed(seed)
    model = Stack(family, d)
    return learn(model, distance, torch.optim.Adam(model.parameters(), 3e-3), updates=updates, seed=seed).accuracy
