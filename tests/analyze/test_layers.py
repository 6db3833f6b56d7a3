"""One layer of each family: what they compute and how many operations they take."""

from __future__ import annotations

import math

import pytest
import torch

from mtkit.analyze.complexity import counted_flops, operations, path_length, recurrent_flops
from mtkit.analyze.layers import (
    KERNEL,
    BlockedAttentionLayer,
    SelfAttentionLayer,
    attentive,
    convolutional,
    recurrent,
    windowed,
)


@pytest.mark.parametrize("n", [3, 8, 13, 16])
def test_attention_by_blocks_is_attention_within_the_window(n: int) -> None:
    """CH-92: the same output for n r products."""
    torch.manual_seed(1)
    plain, blocked = SelfAttentionLayer(12, 3, window=4).double(), BlockedAttentionLayer(12, 3, window=4).double()
    blocked.load_state_dict(plain.state_dict())
    x = torch.randn(1, n, 12).double()
    torch.testing.assert_close(blocked(x), plain(x))


def test_products_of_a_window_grow_with_the_length_and_not_its_square() -> None:
    layer = BlockedAttentionLayer(8, window=4)
    counts = [counted_flops(lambda n=n: layer(torch.randn(1, n, 8))) for n in (32, 64, 128)]
    assert counts[1] == 2 * counts[0] and counts[2] == 4 * counts[0]


@pytest.mark.parametrize(
    ("build", "grows"), [(recurrent, True), (convolutional, False), (attentive, False), (windowed, False)]
)
def test_recurrence_alone_takes_more_operations_for_a_longer_sentence(build, grows: bool) -> None:
    """CH-121"""
    layer = build(16)
    short, long = (operations(lambda n=n: layer(torch.randn(1, n, 16))) for n in (16, 32))
    assert (long > short) == grows


def test_recurrence_costs_two_products_a_step() -> None:
    assert counted_flops(lambda: recurrent(16)(torch.randn(1, 10, 16))) == recurrent_flops(10, 16)


def test_paths_between_the_ends_of_a_sentence() -> None:
    """CH-122: recurrence and attention need one layer, a kernel of 3 one for each position."""
    n, d = 9, 4

    def stack(build):
        return lambda n_layers: torch.nn.Sequential(*[build(d).double() for _ in range(n_layers)])

    torch.manual_seed(1)
    assert path_length(stack(recurrent), n, d, 9) == 1
    assert path_length(stack(attentive), n, d, 9) == 1
    assert path_length(stack(convolutional), n, d, 9) == math.ceil(2 * (n - 1) / (KERNEL - 1)) == 8
    restricted = lambda d: SelfAttentionLayer(d, window=3)  # noqa: E731
    assert path_length(stack(restricted), n, d, 9) == math.ceil((n - 1) / 3)
