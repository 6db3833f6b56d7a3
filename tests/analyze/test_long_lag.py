"""A symbol over a distance: what each family can reach and learn."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import nn

from mtkit.analyze.long_lag import FIELDS, Family, accuracy_at_distance, reader
from mtkit.analyze.memory_span import N_SYMBOLS


@pytest.mark.parametrize("family", get_args(Family))
def test_every_family_learns_a_symbol_that_stands_near(family: Family) -> None:
    assert accuracy_at_distance(family, 2, d=32, updates=150) == 1


@pytest.mark.parametrize("family", get_args(Family))
def test_gradients_tell_how_far_a_family_sees(family: Family) -> None:
    """CH-127: recurrence and attention see the whole sequence, six convolutions of kernel 5 the last 25 tokens,
    with dilations 1, 2, 4, 8, 16, 32 the last 253."""
    length = 260
    torch.manual_seed(1)
    model = reader(family, 16).double()
    embedded: list[torch.Tensor] = []
    assert isinstance(model.embedding, nn.Embedding)
    model.embedding.register_forward_hook(lambda _, __, out: embedded.append(out.requires_grad_()))
    tokens = torch.randint(2 * N_SYMBOLS, (1, length))
    logits = model(tokens)
    (gradient,) = torch.autograd.grad(logits.sum(), embedded[0])
    seen = (gradient.view(length, 16).norm(dim=-1) > 0).tolist()
    n_seen = {"convolution": 25, "dilated convolution": 253}.get(family, length)
    assert n_seen == FIELDS.get(family, length)
    assert seen == [False] * (length - n_seen) + [True] * n_seen


def test_attention_knows_positions() -> None:
    """Without them the last token could not tell where a symbol stood."""
    torch.manual_seed(1)
    model = reader("attention", 16)
    one, other = torch.tensor([[0, 9, 10]]), torch.tensor([[9, 0, 10]])
    assert not torch.allclose(model(one), model(other))
