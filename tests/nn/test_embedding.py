"""Token embeddings, the sinusoidal position signal and learned positions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mtkit.nn.embedding import LearnedPositions, NoPositions, SinusoidalPositions, TokenEmbedding, sinusoidal_positions


def test_the_signal_is_that_of_the_paper() -> None:
    """CH-105; Vaswani et al. (2017), §3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos of the same."""
    table = sinusoidal_positions(200, 12)
    expected = np.array(
        [
            [
                (math.sin if column % 2 == 0 else math.cos)(position / 10000 ** (2 * (column // 2) / 12))
                for column in range(12)
            ]
            for position in range(200)
        ]
    )
    assert table.dtype == torch.float32
    assert np.allclose(table.numpy(), expected, rtol=0, atol=1e-6)


def test_values_by_hand() -> None:
    table = sinusoidal_positions(2, 4)
    assert table[0].tolist() == [0, 1, 0, 1]
    # position 1: rates 1 and 10000^(-1/2) = 0.01
    assert table[1].tolist() == pytest.approx([0.841471, 0.540302, 0.00999983, 0.99995], abs=1e-6)


def test_a_shift_is_a_linear_map_of_the_position() -> None:
    """CH-105; §3.5: PE(pos + k) is a rotation of PE(pos) by k times each rate."""
    d_model, shift = 16, 7
    table = sinusoidal_positions(60, d_model).double()
    rotation = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        angle = shift / 10000 ** (i / d_model)
        rotation[i, i] = rotation[i + 1, i + 1] = math.cos(angle)
        rotation[i, i + 1], rotation[i + 1, i] = math.sin(angle), -math.sin(angle)
    assert torch.allclose(table[:-shift] @ rotation.T, table[shift:], rtol=0, atol=1e-5)


def test_positions_are_added_and_begin_where_they_are_told() -> None:
    positions = SinusoidalPositions(8, length=20)
    x = torch.randn(2, 5, 8)
    assert torch.equal(positions(x), x + sinusoidal_positions(5, 8))
    assert torch.equal(positions(x, start=9), x + sinusoidal_positions(14, 8)[9:])


def test_the_table_grows_beyond_its_length() -> None:
    """CH-105"""
    positions = SinusoidalPositions(8, length=4)
    found = positions(torch.zeros(1, 3, 8), start=30)
    assert torch.equal(found[0], sinusoidal_positions(33, 8)[30:])
    assert torch.equal(positions(torch.zeros(1, 4, 8))[0], sinusoidal_positions(4, 8)), "the start is as before"


def test_a_table_that_grew_while_translating_serves_training_after_it() -> None:
    positions = SinusoidalPositions(8, length=4)
    with torch.inference_mode():
        positions(torch.zeros(1, 10, 8))
    x = torch.randn(1, 10, 8, requires_grad=True)
    positions(x).square().sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, 2 * (x.detach() + sinusoidal_positions(10, 8)))


def test_the_table_is_no_parameter_and_is_not_saved() -> None:
    """CH-105"""
    positions = SinusoidalPositions(8)
    assert list(positions.parameters()) == []
    assert positions.state_dict() == {}


def test_embeddings_are_rows_times_the_root_of_the_width() -> None:
    """CH-118"""
    embedding = TokenEmbedding(10, 16, pad_id=0)
    tokens = torch.tensor([[3, 9], [0, 3]])
    assert torch.allclose(embedding(tokens), embedding.weight[tokens] * 4)
    assert embedding(tokens)[1, 0].eq(0).all(), "padding is zero"


def test_embeddings_are_drawn_so_that_the_signal_has_unit_variance() -> None:
    torch.manual_seed(1)
    embedding = TokenEmbedding(2000, 64, pad_id=0)
    values = embedding(torch.arange(1, 2000))
    # standard error of a variance of n normal values: sqrt(2 / n)
    assert abs(values.var().item() - 1) <= 4 * math.sqrt(2 / values.numel())


def test_padding_learns_nothing() -> None:
    embedding = TokenEmbedding(5, 4, pad_id=2)
    embedding(torch.tensor([2, 3])).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad[2].eq(0).all()
    assert embedding.weight.grad[3].eq(2).all(), "sqrt(4) times 1"


def test_learned_positions_are_rows_of_their_table() -> None:
    torch.manual_seed(2)
    positions = LearnedPositions(8, max_positions=10)
    x = torch.randn(2, 4, 8)
    assert torch.equal(positions(x), x + positions.table.weight[:4])
    assert torch.equal(positions(x, start=3), x + positions.table.weight[3:7])


def test_positions_beyond_the_last_learned_one_share_its_row() -> None:
    torch.manual_seed(2)
    positions = LearnedPositions(8, max_positions=3)
    found = positions(torch.zeros(1, 5, 8))[0]
    assert torch.equal(found, positions.table.weight[[0, 1, 2, 2, 2]])
    assert torch.equal(positions(torch.zeros(1, 2, 8), start=7)[0], positions.table.weight[[2, 2]])


def test_learned_positions_have_variance_1_over_d() -> None:
    torch.manual_seed(1)
    weight = LearnedPositions(64, max_positions=2000).table.weight
    # standard error of a variance of n normal values: sqrt(2 / n)
    assert abs(weight.var().item() * 64 - 1) <= 4 * math.sqrt(2 / weight.numel())


def test_no_positions_add_nothing() -> None:
    x = torch.randn(2, 4, 8)
    assert torch.equal(NoPositions()(x, start=5), x)
    assert list(NoPositions().parameters()) == []
