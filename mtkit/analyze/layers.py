"""One layer of each family over a whole sentence, [1, n, d] -> [1, n, d]: no padding, no dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mtkit.nn.attention import MultiHeadAttention
from mtkit.nn.convolution import GatedConvolution
from mtkit.nn.masks import far_mask
from mtkit.nn.recurrent import ElmanCell

KERNEL = 3
WINDOW = 8  # r: positions to each side that restricted attention sees


class RecurrentLayer(nn.Module):
    """h_t = tanh(W x_t + U h_{t-1})."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.cell = ElmanCell(d, d)

    def forward(self, x: Tensor) -> Tensor:
        inputs, state, states = self.cell.input(x), x.new_zeros(len(x), x.size(2)), []
        for step in inputs.unbind(1):
            state = self.cell(step, state)
            states.append(state)
        return torch.stack(states, dim=1)


class SelfAttentionLayer(nn.Module):
    """Every position looks at every other, or at `window` positions to each side."""

    def __init__(self, d: int, n_heads: int = 1, window: int | None = None) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d, n_heads)
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        queries, memory = self.attention.project_all(x)
        mask = None if self.window is None else far_mask(x.size(1), self.window, x.device)
        return self.attention.attend(queries, memory, mask)[0]


class BlockedAttentionLayer(SelfAttentionLayer):
    """Attention within a window by blocks as long as it: each block sees itself and its neighbours, n r products in
    place of n^2. The same output as `SelfAttentionLayer` with that window.
    """

    def forward(self, x: Tensor) -> Tensor:
        assert self.window is not None
        n, window = x.size(1), self.window
        queries, memory = self.attention.project_all(x)
        n_blocks = -(-n // window)
        extra = n_blocks * window - n
        padded = nn.functional.pad(queries, (0, 0, 0, extra)).unflatten(2, (n_blocks, window))
        # Three blocks side by side for each: before, itself, behind; zeros stand beyond the ends.
        sides = (0, 0, window, window + extra)
        keys, values = (nn.functional.pad(part, sides).unfold(2, 3 * window, window) for part in memory)
        energy = torch.matmul(padded, keys) * self.attention.scale  # [batch, heads, blocks, window, 3 window]
        places = torch.arange(n_blocks * window, device=x.device).view(n_blocks, window, 1)
        seen = places[:, :1] - window + torch.arange(3 * window, device=x.device)
        hidden = ((places - seen).abs() > window) | (seen < 0) | (seen >= n)
        hidden = hidden & ~((places >= n) & (seen == places))  # a row of padding looks at itself
        weights = energy.masked_fill(hidden, -torch.inf).softmax(-1)
        context = torch.matmul(weights, values.transpose(-1, -2)).flatten(2, 3)[:, :, :n]
        return self.attention.output(context.transpose(1, 2).flatten(2))


def recurrent(d: int) -> nn.Module:
    return RecurrentLayer(d)


def recurrent_steps(n: int, d: int) -> int:
    """Steps of the recurrence from the first to the last of n positions: what its cell is called for, but the first."""
    layer, calls = RecurrentLayer(d), []
    layer.cell.register_forward_hook(lambda *_: calls.append(1))
    layer(torch.zeros(1, n, d))
    return len(calls) - 1


def convolutional(d: int, dilation: int = 1, kernel: int = KERNEL) -> nn.Module:
    return GatedConvolution(d, d, kernel, dilation, causal=False)


def attentive(d: int) -> nn.Module:
    return SelfAttentionLayer(d)


def windowed(d: int) -> nn.Module:
    return BlockedAttentionLayer(d, window=WINDOW)
