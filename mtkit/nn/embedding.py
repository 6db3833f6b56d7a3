"""Token embeddings and what tells a model of positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoidal_positions(length: int, d_model: int) -> Tensor:
    """[length, d_model]: sin(pos / 10000^(2i/d)) at column 2i, the cosine at 2i + 1 (Vaswani et al. 2017, §3.5)."""
    rates = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    table = torch.empty(length, d_model, dtype=torch.float64)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()[:, : d_model // 2]
    return table.float()


class SinusoidalPositions(nn.Module):
    """Adds the sinusoidal signal; the table has no parameters, grows to any length and follows its input anywhere."""

    def __init__(self, d_model: int, length: int = 256) -> None:
        super().__init__()
        self.d_model = d_model
        # No buffer: it can always be computed anew, also for a model that was built without memory and then filled.
        self.table = sinusoidal_positions(length, d_model)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x [batch, length, d_model] stands at positions start, start + 1, …"""
        end = start + x.size(1)
        length = self.table.size(0)
        if end > length or self.table.device != x.device:
            longer = max(end, 2 * length) if end > length else length
            self.table = sinusoidal_positions(longer, self.d_model).to(x.device)
        return x + self.table[start:end]


class PositionEmbedding(nn.Embedding):
    """A learned vector for each position (Gehring et al. 2017, §3.1); those beyond the last share its vector, so that a
    longer sentence than any in training is still read.
    """

    def forward(self, positions: Tensor) -> Tensor:
        return super().forward(positions.clamp(max=self.num_embeddings - 1))


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position (Vaswani et al. 2017, table 3, row E)."""

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.table = PositionEmbedding(max_positions, d_model)
        nn.init.normal_(self.table.weight, std=d_model**-0.5)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x [batch, length, d_model] stands at positions start, start + 1, …"""
        return x + self.table(torch.arange(start, start + x.size(1), device=x.device))


class NoPositions(nn.Module):
    """Adds nothing: what is left is a bag of words, except for the order that a causal mask lets through."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x


class TokenEmbedding(nn.Embedding):
    """Embeddings drawn from N(0, 1/d) and multiplied by sqrt(d) (Vaswani et al. 2017, §3.4); padding is 0."""

    def __init__(self, vocab_size: int, d_model: int, pad_id: int) -> None:
        super().__init__(vocab_size, d_model, padding_idx=pad_id)
        nn.init.normal_(self.weight, std=d_model**-0.5)
        with torch.no_grad():
            self.weight[pad_id].zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * math.sqrt(self.embedding_dim)
