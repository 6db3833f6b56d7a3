"""The masks of sequence models; True = may not be looked at."""

from __future__ import annotations

import torch
from torch import Tensor


def causal_mask(length: int, device: torch.device | str | None = None) -> Tensor:
    """[length, length]: position i (row) may not look at any j > i."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


def far_mask(length: int, window: int, device: torch.device | str | None = None) -> Tensor:
    """[length, length]: a position may not look further than `window` positions to either side."""
    positions = torch.arange(length, device=device)
    return (positions[:, None] - positions).abs() > window


def key_pad_mask(pad_mask: Tensor) -> Tensor:
    """A padding mask [batch, keys] in the shape of attention scores, [batch, 1, 1, keys]."""
    return pad_mask[:, None, None, :]
