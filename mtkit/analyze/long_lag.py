"""A symbol recalled over a distance by recurrence, by convolution and by self-attention."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from mtkit.analyze.layers import SelfAttentionLayer
from mtkit.analyze.memory_span import N_SYMBOLS, Recaller, learn
from mtkit.nn.convolution import GatedConvolution
from mtkit.nn.embedding import SinusoidalPositions

Family = Literal["recurrence", "convolution", "dilated convolution", "attention"]
KERNEL = 5
_DILATIONS = {"convolution": (1,) * 6, "dilated convolution": (1, 2, 4, 8, 16, 32)}
FIELDS = {family: (KERNEL - 1) * sum(dilations) + 1 for family, dilations in _DILATIONS.items()}
"""Tokens that the last state of six convolutions sees: 25, as six blocks of Gehring et al. (2017, §3.2) do, and 253
with dilations that double from block to block (Kalchbrenner et al. 2016)."""


class Stack(nn.Module):
    """Reads tokens [batch, length], ends in logits [batch, symbols] from the last position.

    convolutions: six causal gated blocks of kernel 5 with residual sums; attention: one layer with one head, a residual
    sum and sinusoidal positions.
    """

    def __init__(self, family: Literal["convolution", "dilated convolution", "attention"], d: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2 * N_SYMBOLS, d)  # symbols, then noise
        self.positions = SinusoidalPositions(d) if family == "attention" else nn.Identity()
        self.layers = nn.ModuleList(
            [SelfAttentionLayer(d)]
            if family == "attention"
            else [GatedConvolution(d, d, KERNEL, dilation, causal=True) for dilation in _DILATIONS[family]]
        )
        self.output = nn.Linear(d, N_SYMBOLS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.positions(self.embedding(tokens))
        for layer in self.layers:
            x = (x + layer(x)) * math.sqrt(0.5)
        return self.output(x[:, -1])


def reader(family: Family, d: int) -> nn.Module:
    """A model of tokens [batch, length] -> logits [batch, symbols]; recurrence: one layer of GRU."""
    return Recaller("gru", d) if family == "recurrence" else Stack(family, d)


def accuracy_at_distance(family: Family, distance: int, *, d: int = 64, updates: int = 400, seed: int = 1) -> float:
    """Share of symbols that are recalled so many tokens later, on new sequences, after training on that distance."""
    torch.manual_seed(seed)
    model = reader(family, d)
    return learn(model, distance, torch.optim.Adam(model.parameters(), 3e-3), updates=updates, seed=seed).accuracy
