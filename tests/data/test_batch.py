"""Batches as tensors, worked out by hand."""

from __future__ import annotations

import numpy as np
import torch

from mtkit.data.batch import Batch, make_batch, make_source

# PAD 0, BOS 2, EOS 3


def test_padding_and_shifting():
    batch = make_batch([[7, 8], [9]], [[5], [6, 7, 8]])
    assert batch.src.tolist() == [[7, 8, 3], [9, 3, 0]]
    assert batch.src_pad_mask.tolist() == [[False, False, False], [False, False, True]]
    assert batch.trg_in.tolist() == [[2, 5, 0, 0], [2, 6, 7, 8]]
    assert batch.trg_out.tolist() == [[5, 3, 0, 0], [6, 7, 8, 3]]
    assert batch.n_trg_tokens == 6


def test_tensors_are_int64_and_the_mask_is_bool_whatever_the_rows_are():
    rows = [np.array([7, 8], dtype=np.int32), np.array([9], dtype=np.uint16)]
    batch = make_batch(rows, rows)
    assert {tensor.dtype for tensor in (batch.src, batch.trg_in, batch.trg_out)} == {torch.int64}
    assert batch.src_pad_mask.dtype == torch.bool
    assert batch.src.tolist() == [[7, 8, 3], [9, 3, 0]]


def test_one_sentence_keeps_its_batch_dimension():
    src, src_pad_mask = make_source([[7]])
    assert src.shape == src_pad_mask.shape == (1, 2)
    batch = make_batch([[7]], [[5]])
    assert batch.trg_in.tolist() == [[2, 5]]
    assert batch.trg_out.tolist() == [[5, 3]]


def test_sentence_without_a_token_is_eos_alone():
    batch = make_batch([[], [7]], [[], [5]])
    assert batch.src.tolist() == [[3, 0], [7, 3]]
    assert batch.src_pad_mask.tolist() == [[False, True], [False, False]]
    assert batch.trg_in.tolist() == [[2, 0], [2, 5]]
    assert batch.trg_out.tolist() == [[3, 0], [5, 3]]
    assert batch.n_trg_tokens == 3


def test_to_moves_every_tensor():
    batch = make_batch([[7]], [[5]]).to("meta")
    assert isinstance(batch, Batch)
    assert {tensor.device.type for tensor in batch} == {"meta"}
