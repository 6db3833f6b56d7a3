"""Where the recurrent systems drop units while they learn: what is read from below, never what is carried along."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from mtkit import models
from mtkit.nn.dropout import Dropout
from mtkit.text.tokenizer import EOS_ID, PAD_ID

N_BATCH, N_SRC, N_TRG = 3, 7, 5
D_EMBEDDING, D_HIDDEN, D_MAXOUT = 12, 16, 6  # of the preset `tiny`
SRC, TRG = (N_BATCH * N_SRC, D_EMBEDDING), (N_BATCH * N_TRG, D_EMBEDDING)
SRC_ABOVE, TRG_ABOVE, A_STEP = (N_BATCH * N_SRC, D_HIDDEN), (N_BATCH * N_TRG, D_HIDDEN), (N_BATCH, D_HIDDEN)
MAXOUT = (N_BATCH * N_TRG, D_MAXOUT)

# Vectors and their width of each site. Zaremba et al. (2014): below each LSTM layer and above the last, not between
# two steps; with input feeding both layers of the decoder read one step after the other, the first the vector fed.
SITES: list[tuple[dict[str, Any], dict[tuple[int, int], int]]] = [
    ({"type": "rnnencdec"}, {SRC: 1, TRG: 1, MAXOUT: 1}),
    ({"type": "rnnsearch"}, {SRC: 1, TRG: 1, MAXOUT: 1}),
    ({"type": "seq2seq"}, {SRC: 1, SRC_ABOVE: 1, TRG: 1, TRG_ABOVE: 2}),
    ({"type": "luong", "attention": "none", "input_feeding": False}, {SRC: 1, SRC_ABOVE: 1, TRG: 1, TRG_ABOVE: 2}),
    ({"type": "luong", "input_feeding": False}, {SRC: 1, SRC_ABOVE: 1, TRG: 1, TRG_ABOVE: 2}),
    ({"type": "luong", "input_feeding": True}, {SRC: 1, SRC_ABOVE: 1, TRG: 1, A_STEP: 2 * N_TRG, TRG_ABOVE: 1}),
]


def dropped(monkeypatch: pytest.MonkeyPatch, section: dict[str, Any]) -> Counter[tuple[int, int]]:
    """What a pass over a batch drops from, at a rate of a half."""
    found: Counter[tuple[int, int]] = Counter()
    forward = Dropout.forward

    def watched(self: Dropout, x: torch.Tensor) -> torch.Tensor:
        assert self.p == 0.5
        y = forward(self, x)
        assert not self.training or bool((y == 0).any()), "a site that drops nothing"
        found[(x.numel() // x.size(-1), x.size(-1))] += self.training
        return y

    monkeypatch.setattr(Dropout, "forward", watched)
    torch.manual_seed(1)
    model = models.build({"preset": "tiny", "dropout": 0.5, **section}, 11, 11, PAD_ID)
    src, trg = torch.full((N_BATCH, N_SRC), EOS_ID + 1), torch.full((N_BATCH, N_TRG), EOS_ID + 2)
    no_padding = torch.zeros(N_BATCH, N_SRC, dtype=torch.bool)
    model.train().features(src, no_padding, trg)
    learning = +found
    model.eval().features(src, no_padding, trg)
    assert +found == learning, "nothing is dropped in evaluation"
    return learning


@pytest.mark.parametrize(
    ("section", "sites"), SITES, ids=lambda value: ", ".join(map(str, value.values())) if "type" in value else ""
)
def test_units_are_dropped_where_a_layer_reads_from_below(
    monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], sites: dict[tuple[int, int], int]
) -> None:
    """CH-52"""
    assert dropped(monkeypatch, section) == Counter(sites)
