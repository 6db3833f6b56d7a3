"""Batches as tensors: padding and shifting happen here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtkit.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

Row = Sequence[int] | np.ndarray  # token ids without BOS and EOS


class Batch(NamedTuple):
    """Sentence pairs as int64 tensors; everything behind a sentence's end is PAD."""

    src: Tensor  # [batch, src_len], ends with EOS
    src_pad_mask: Tensor  # [batch, src_len], True = padding
    trg_in: Tensor  # [batch, trg_len], starts with BOS
    trg_out: Tensor  # [batch, trg_len], ends with EOS

    @property
    def n_trg_tokens(self) -> int:
        """Target tokens to be predicted: EOS counts, padding does not."""
        return int((self.trg_out != PAD_ID).sum())

    def to(self, device: str | torch.device) -> Batch:
        """The same batch on `device`."""
        return Batch(*(tensor.to(device) for tensor in self))


def make_batch(src_rows: Sequence[Row], trg_rows: Sequence[Row]) -> Batch:
    """Pad sentence pairs, given as ids without BOS and EOS, to one batch."""
    src, src_pad_mask = make_source(src_rows)
    trg_len = 1 + max(map(len, trg_rows))
    trg_in = np.full((len(trg_rows), trg_len), PAD_ID, dtype=np.int64)
    trg_out = np.full((len(trg_rows), trg_len), PAD_ID, dtype=np.int64)
    for i, row in enumerate(trg_rows):
        trg_in[i, 0] = BOS_ID
        trg_in[i, 1 : len(row) + 1] = row
        trg_out[i, : len(row)] = row
        trg_out[i, len(row)] = EOS_ID
    return Batch(src, src_pad_mask, torch.from_numpy(trg_in), torch.from_numpy(trg_out))


def make_source(src_rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Source sentences, given as ids without EOS: `src` and `src_pad_mask`, both [batch, src_len]."""
    lengths = np.array([len(row) + 1 for row in src_rows])
    src = np.full((len(src_rows), lengths.max()), PAD_ID, dtype=np.int64)
    for i, row in enumerate(src_rows):
        src[i, : len(row)] = row
        src[i, len(row)] = EOS_ID
    src_pad_mask = np.arange(src.shape[1]) >= lengths[:, None]
    return torch.from_numpy(src), torch.from_numpy(src_pad_mask)
