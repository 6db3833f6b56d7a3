"""Patterns of attention on matrices that show them by construction."""

from __future__ import annotations

import math

import pytest
import torch

from mtkit.analyze.patterns import crossing_deficit, divergence, even_rows, label, traits

N = 10


def rows_of(pattern: torch.Tensor) -> torch.Tensor:
    return pattern / pattern.sum(1, keepdim=True)


def test_a_diagonal_is_found() -> None:
    """CH-94: 0.8 on the own place, the rest even."""
    weights = rows_of(torch.full((N, N), 0.2 / (N - 1)) + (0.8 - 0.2 / (N - 1)) * torch.eye(N))
    found = traits([weights])
    assert found.diagonal == pytest.approx(0.8)
    assert label(found) == "diagonal"


def test_a_head_that_looks_at_the_word_before_is_adjacent() -> None:
    """CH-94"""
    weights = torch.zeros(N, N)
    weights[0, 0] = 1
    weights[range(1, N), range(N - 1)] = 1
    found = traits([weights])
    assert (found.diagonal, found.adjacent) == (pytest.approx(0.1), pytest.approx(0.9))
    assert label(found) == "adjacent"
    assert found.noticed == 1 and found.top_3 == pytest.approx(1)


def test_a_stripe_is_found_wherever_it_stands() -> None:
    """CH-95: most weight on one column, in another place in each sentence."""
    maps = []
    for column in (9, 3):
        weights = torch.full((N, N), 0.3 / (N - 1))
        weights[:, column] = 0.7
        maps.append(weights)
    found = traits(maps)
    assert found.stripes == pytest.approx(0.7)
    assert label(found) == "stripes"


def test_even_rows_are_found() -> None:
    """CH-96"""
    found = traits([torch.full((4, 20), 1 / 20)])
    assert found.evenness == pytest.approx(1)
    assert label(found) == "uniform"
    assert found.noticed == 0 and found.top_3 == pytest.approx(0.15)


def test_rows_without_preference_are_counted_where_there_is_a_choice() -> None:
    """CH-96: half of the rows of one map are even, the other map is too narrow."""
    weights = torch.cat([torch.full((2, 12), 1 / 12), torch.eye(12)[:2]])
    assert even_rows([weights, torch.full((3, 11), 1 / 11)], 12) == (2, 4)


def test_maps_without_a_choice_are_left_out_where_there_are_others() -> None:
    """A row over two columns looks at one of them with half of its weight at least."""
    narrow, wide = torch.full((2, 2), 1 / 2), torch.full((N, N), 1 / N)
    assert traits([narrow, wide]) == traits([wide])
    assert traits([narrow]).stripes == 1 / 2


def test_a_decoder_spreads_over_what_it_can_see() -> None:
    """CH-96: row i evenly over i + 1 columns is as uniform as can be."""
    weights = rows_of(torch.ones(N, N).tril())
    assert traits([weights], causal=True).evenness == pytest.approx(1)
    assert label(traits([weights], causal=True)) == "uniform"
    assert traits([weights]).evenness < 0.75


def test_weight_that_a_border_stops_is_missed_at_its_distance() -> None:
    """CH-97: two sentences, of 4 and 6 words, that look at themselves alone.

    By hand: a row of the first has 1/4 within, of the second 1/6. For each offset, the mean over the pairs on one side
    of the border, times the pairs across it: offsets +-1 (1 pair across; 3 of 1/4, 5 of 1/6), +-2 (2; 2 and 4), +-3
    (3; 1 and 3), +-4 (4; 0 and 2), +-5 (4; 0 and 1); farther pairs have none to be compared with.
    """
    weights = torch.zeros(N, N)
    weights[:4, :4], weights[4:, 4:] = 1 / 4, 1 / 6
    means = [(3 / 4 + 5 / 6) / 8, (2 / 4 + 4 / 6) / 6, (1 / 4 + 3 / 6) / 4, 1 / 6, 1 / 6]
    expected = 2 * sum(n * mean for n, mean in zip((1, 2, 3, 4, 4), means, strict=True)) / N
    assert crossing_deficit(weights, 4) == pytest.approx(expected)


def test_a_head_that_knows_no_border_has_no_deficit() -> None:
    """CH-97: even rows, and rows that look at the word before."""
    before = torch.zeros(N, N)
    before[range(1, N), range(N - 1)] = 1
    for weights in (torch.full((N, N), 1 / N), before):
        assert crossing_deficit(weights, 4) == pytest.approx(0, abs=1e-7)


def test_weights_of_exactly_nothing_are_counted() -> None:
    """CH-67: half of the columns; of a decoder's row those that it cannot see do not count."""
    weights = torch.zeros(8, 8)
    weights[:, :4] = 1 / 4
    assert traits([weights]).zeros == pytest.approx(0.5)
    assert traits([rows_of(torch.ones(N, N).tril())], causal=True).zeros == 0


def test_rows_without_a_choice_say_nothing_of_sparsity() -> None:
    """CH-67: a decoder whose rows are even; only those that see six columns or more count: 3/6, 3/7, 3/8."""
    found = traits([rows_of(torch.ones(8, 8).tril())], causal=True)
    assert found.top_3 == pytest.approx((3 / 6 + 3 / 7 + 3 / 8) / 3)


def test_the_diagonal_of_unequal_lengths_is_a_slope() -> None:
    """CH-33: 4 rows over 8 columns, row i at column 2 i: no lag; all on the first column: (0 + 1 + 2 + 3) / 16."""
    weights = torch.zeros(4, 8)
    weights[range(4), range(0, 8, 2)] = 1
    assert traits([weights]).lag == 0 and traits([weights]).diagonal == 1
    first = torch.zeros(4, 8)
    first[:, 0] = 1
    assert traits([first]).lag == pytest.approx(6 / 16)


def test_divergence_is_0_for_equal_maps_and_log_2_for_maps_that_share_nothing() -> None:
    weights = torch.eye(3)
    assert divergence(weights, weights) == pytest.approx(0, abs=1e-12)
    assert divergence(weights, weights.roll(1, dims=1)) == pytest.approx(math.log(2))


def test_the_row_that_sees_one_column_alone_is_no_likeness() -> None:
    """CH-99: two decoder heads that differ wherever they can."""
    first, second = torch.eye(3), torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    assert divergence(first, second, causal=True) == pytest.approx(math.log(2))
    assert divergence(first, second) == pytest.approx(2 / 3 * math.log(2))
