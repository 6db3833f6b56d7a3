"""Global and local attention with four scores (Luong, Pham and Manning 2015, §3.1-3.2).

Positions are counted from 0 in reading order, and EOS, which ends every source, is one of them: a source of S tokens
has the positions 0 … S - 1.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

Score = Literal["dot", "general", "concat", "location"]
Kind = Literal["global", "local_m", "local_p"]
Gaussian = Literal["paper", "chapter", "none"]

# Fetching the positions of a window costs about as much as one product over five times as many (x86, d = 512).
FETCH_COST = 5


class SourceScore(nn.Module):
    """score(h_t, h_s) for all source positions s (Luong et al. 2015, §3.1; `location` is eq. 8).

    - dot: h_t . h_s; both must have one width.
    - general: h_t^T W_a h_s.
    - concat: v_a^T tanh(W_a [h_t; h_s]); W_a = [W | U] stands as `query` and `key`, so that U h_s is computed once. It
      is the additive score of Bahdanau et al. (2015), with h_t in the place of s_{i-1}.
    - location: W_a h_t, a number for each source position, which looks at no source state. W_a has
      `max_source_length` rows; a longer source ends there, and positions beyond get no weight.

    Raises: ValueError for a dot score of unequal widths.
    """

    def __init__(self, score: Score, d_query: int, d_memory: int, d_attention: int, max_source_length: int) -> None:
        super().__init__()
        self.score = score
        if score == "dot" and d_query != d_memory:
            raise ValueError(f"dot needs decoder and encoder states of one width, got {d_query} and {d_memory}")
        if score == "general":
            self.key = nn.Linear(d_memory, d_query, bias=False)
        elif score == "concat":
            self.query = nn.Linear(d_query, d_attention, bias=False)
            self.key = nn.Linear(d_memory, d_attention, bias=False)
            self.energy = nn.Linear(d_attention, 1, bias=False)
        elif score == "location":
            self.query = nn.Linear(d_query, max_source_length, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """What the score needs of the source, once a sentence: [batch, src_len, d], of width 0 for location."""
        if self.score == "location":
            return memory[:, :, :0]
        return memory if self.score == "dot" else self.key(memory)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Energies [batch, n, src_len] of `query` [batch, n, d_query]."""
        if self.score == "concat":
            return self.energy(torch.tanh(self.query(query)[:, :, None] + keys[:, None])).squeeze(-1)
        if self.score != "location":
            return torch.matmul(query, keys.transpose(1, 2))
        energies = self.query(query)
        beyond = keys.size(1) - energies.size(-1)
        if beyond <= 0:
            return energies[..., : keys.size(1)]
        return torch.cat([energies, energies.new_full((*energies.shape[:2], beyond), -math.inf)], dim=-1)


class Window(NamedTuple):
    """Where local attention looks."""

    center: Tensor  # [batch, n, 1], p_t, a real number for local_p
    middle: Tensor  # [batch, n, 1], the whole position under it
    length: Tensor  # [batch, 1, 1], positions of the source


class LuongAttention(nn.Module):
    """Attention over all source positions, or over a window around one of them.

    local_m: p_t = t, the last source position where t is beyond it. local_p: p_t = S sigmoid(v_p^T tanh(W_p h_t))
    (eq. 9). The window is [p_t - D, p_t + D] around floor(p_t), clipped at both ends of the sentence. The authors' own
    code has (S - 1) sigmoid(…) + 1 with positions from 1: the range differs by one position. A step that looks at a
    window of a long source scores the 2D + 1 positions in it; otherwise scoring all and hiding the rest is faster.

    Gaussian, sigma = D / 2:
    - paper (eq. 10): for local_p only, softmax in the window times exp(-(s - p_t)^2 / 2 sigma^2), not renormalised.
    - chapter: the textbook chapter's formula, for local_m too: the factor stands inside the softmax, rows sum to 1.
    - none.
    """

    def __init__(
        self,
        kind: Kind,
        score: Score,
        d_query: int,
        d_memory: int,
        *,
        window: int = 10,
        gaussian: Gaussian = "paper",
        max_source_length: int = 256,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.window = window
        self.gaussian = gaussian
        self.score = SourceScore(score, d_query, d_memory, d_query, max_source_length)
        if kind == "local_p":
            self.position_hidden = nn.Linear(d_query, d_query, bias=False)  # W_p
            self.position = nn.Linear(d_query, 1, bias=False)  # v_p

    def keys(self, memory: Tensor) -> Tensor:
        return self.score.keys(memory)

    def weights(self, query: Tensor, keys: Tensor, pad_mask: Tensor, step: Tensor) -> Tensor:
        """Attention in fp32, [batch, n, src_len]; exactly 0 on padding and outside the window.

        Args:
            query: [batch, n, d_query], h_t.
            keys: see `keys`.
            pad_mask: [batch, src_len], True = padding, at the end of a row.
            step: t for each query, from 0; broadcasts to [batch, n].
        """
        pad_mask = self._within_reach(pad_mask)
        energies = self._energies(query, keys).masked_fill(pad_mask[:, None], -math.inf)
        if self.kind == "global":
            return energies.softmax(dim=-1)
        window = self._window(query, pad_mask, step, energies.dtype)
        positions = torch.arange(keys.size(1), device=keys.device, dtype=energies.dtype)
        outside = (positions - window.middle).abs() > self.window
        return self._align(energies.masked_fill(outside, -math.inf), positions, window.center)

    def forward(
        self, query: Tensor, memory: Tensor, keys: Tensor, pad_mask: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Context vectors [batch, n, d_memory] and attention [batch, n, src_len]; arguments as in `weights`."""
        n_near = query.size(1) * (2 * self.window + 1)
        looks_at_source = self.score.score != "location"
        if self.kind != "global" and looks_at_source and FETCH_COST * n_near <= keys.size(1):
            return self._attend_near(query, memory, keys, pad_mask, step)
        weights = self.weights(query, keys, pad_mask, step)
        return torch.matmul(weights.to(memory.dtype), memory), weights

    def _attend_near(
        self, query: Tensor, memory: Tensor, keys: Tensor, pad_mask: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`forward` by 2D + 1 scores a query, whatever the length of the source."""
        batch, src_len = pad_mask.shape
        window = self._window(query, pad_mask, step, torch.promote_types(query.dtype, torch.float32))
        offsets = torch.arange(-self.window, self.window + 1, device=keys.device)
        positions = window.middle + offsets  # [batch, n, 2 D + 1]
        index = positions.clamp(0, src_len - 1).long()
        rows = torch.arange(batch, device=keys.device)[:, None, None]
        # Each query is a batch row of its own, for each has other keys.
        energies = self._energies(query.flatten(0, 1)[:, None], keys[rows, index].flatten(0, 1)).view(index.shape)
        energies = energies.masked_fill((positions < 0) | (positions >= window.length), -math.inf)
        near = self._align(energies, positions, window.center)
        context = torch.matmul(near.to(memory.dtype)[:, :, None], memory[rows, index]).squeeze(2)
        # Positions clamped into the sentence stand twice, the second time with weight 0.
        return context, near.new_zeros(batch, query.size(1), src_len).scatter_add(2, index, near)

    def _energies(self, query: Tensor, keys: Tensor) -> Tensor:
        energies = self.score(query, keys)
        return energies.to(torch.promote_types(energies.dtype, torch.float32))

    def _within_reach(self, pad_mask: Tensor) -> Tensor:
        """For location, positions beyond the table are as padding: a window there would have nothing to look at."""
        if self.score.score != "location":
            return pad_mask
        positions = torch.arange(pad_mask.size(1), device=pad_mask.device)
        return pad_mask | (positions >= self.score.query.out_features)

    def _align(self, energies: Tensor, positions: Tensor, center: Tensor) -> Tensor:
        """Attention from the energies in a window, -inf elsewhere; `positions` broadcasts to them."""
        has_gaussian = self.gaussian == "chapter" or (self.gaussian == "paper" and self.kind == "local_p")
        if not has_gaussian:
            return energies.softmax(dim=-1)
        exponent = -((positions - center) ** 2) / (2 * (self.window / 2) ** 2)
        if self.gaussian == "chapter":
            return (energies + exponent).softmax(dim=-1)
        return energies.softmax(dim=-1) * exponent.exp()

    def _window(self, query: Tensor, pad_mask: Tensor, step: Tensor, dtype: torch.dtype) -> Window:
        length = (~pad_mask).sum(1)[:, None, None]
        if self.kind == "local_m":
            center = torch.minimum(step[..., None], length - 1).to(dtype)
        else:
            center = length * torch.sigmoid(self.position(torch.tanh(self.position_hidden(query))).to(dtype))
        middle = torch.minimum(center.detach().floor(), (length - 1).to(dtype))
        return Window(center, middle, length)
