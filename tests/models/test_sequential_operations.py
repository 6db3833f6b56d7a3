"""How many operations a sentence takes one after the other: with recurrence as many as it has words, otherwise none
more for a longer one.
"""

from __future__ import annotations

import pytest
import torch

from mtkit import models
from mtkit.analyze.complexity import operations as count_operations
from mtkit.text.tokenizer import PAD_ID

VOCAB_SIZE = 9


def operations(backend: str, length: int) -> tuple[int, int]:
    """Of reading a source of so many tokens, and of teacher forcing over source and target of so many."""
    torch.manual_seed(1)
    model = models.build({"type": backend, "preset": "tiny"}, VOCAB_SIZE, VOCAB_SIZE, PAD_ID).eval()
    tokens = torch.randint(4, VOCAB_SIZE, (2, length))
    pad_mask = torch.zeros_like(tokens, dtype=torch.bool)
    counts = []
    for run in (lambda: model.encode(tokens, pad_mask), lambda: model(tokens, pad_mask, tokens)):
        counts.append(count_operations(run))
    return counts[0], counts[1]


@pytest.mark.parametrize("backend", ["transformer", "convs2s"])
def test_attention_and_convolution_take_no_more_operations_for_a_longer_sentence(backend: str) -> None:
    """CH-121, table 1-7: O(1), source and target alike."""
    assert operations(backend, 6) == operations(backend, 12) == operations(backend, 24)


@pytest.mark.parametrize("backend", ["rnnencdec", "rnnsearch", "seq2seq", "luong"])
def test_recurrence_takes_as_many_operations_more_for_every_token(backend: str) -> None:
    """CH-121, table 1-7: O(n)."""
    for six, twelve, eighteen in zip(*(operations(backend, length) for length in (6, 12, 18)), strict=True):
        assert eighteen - twelve == twelve - six
        assert twelve - six >= 6
