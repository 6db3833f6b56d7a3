from __future__ import annotations

import math

import pytest
import torch

from mtkit.errors import RequestError
from mtkit.search import LengthPenalty
from mtkit.search.penalties import counted_for_coverage, coverage_penalty


def test_power_penalty_is_the_length_to_the_alpha():
    assert LengthPenalty(1.0, "power")(7) == 7
    assert LengthPenalty(0.5, "power")(9) == pytest.approx(3)
    assert LengthPenalty(3.0, "power")(2) == pytest.approx(8)


def test_gnmt_penalty_is_equation_14_of_wu_et_al():
    # (5 + |Y|)^alpha / (5 + 1)^alpha
    assert LengthPenalty(1.0, "gnmt")(1) == pytest.approx(1)
    assert LengthPenalty(1.0, "gnmt")(7) == pytest.approx(2)
    assert LengthPenalty(2.0, "gnmt")(13) == pytest.approx(9)
    assert LengthPenalty(0.6, "gnmt")(31) == pytest.approx(36**0.6 / 6**0.6)


@pytest.mark.parametrize("normalization", ["power", "gnmt"])
def test_alpha_zero_leaves_the_log_probability_alone(normalization):
    assert [LengthPenalty(0.0, normalization)(length) for length in (1, 5, 400)] == [1, 1, 1]


@pytest.mark.parametrize("normalization", ["power", "gnmt"])
def test_penalty_of_a_tensor_is_the_penalty_of_its_numbers(normalization):
    penalty = LengthPenalty(0.7, normalization)
    lengths = torch.tensor([1.0, 4.0, 90.0], dtype=torch.float64)
    assert penalty(lengths).tolist() == pytest.approx([penalty(1), penalty(4), penalty(90)])


@pytest.mark.parametrize("alpha", [-0.1, 10.5, math.inf, math.nan])
def test_alpha_outside_0_to_10_is_refused(alpha):
    with pytest.raises(RequestError, match="length penalty: expected a number from 0 to 10, got"):
        LengthPenalty(alpha)


def test_unknown_normalization_is_refused():
    with pytest.raises(RequestError, match="expected one of power, gnmt; got 'mean'"):
        LengthPenalty(1.0, "mean")


def test_coverage_penalty_is_equation_14_of_wu_et_al():
    """beta x sum_i log(min(sum_j a_ij, 1)); the last column is EOS and does not count."""
    coverage = torch.tensor([[0.5, 1.3, 0.25, 0.1], [1.0, 2.0, 1.0, 0.0]])
    is_counted = torch.tensor([True, True, True, False])
    expected = 0.2 * (math.log(0.5) + math.log(0.25))
    assert coverage_penalty(coverage, is_counted, 0.2).tolist() == pytest.approx([expected, 0.0])


def test_a_source_word_without_any_attention_costs_a_finite_sum():
    assert coverage_penalty(torch.zeros(1), torch.ones(1).bool(), 1.0).item() == pytest.approx(math.log(1e-6))


def test_neither_padding_nor_eos_counts_for_coverage():
    mask = torch.tensor([[False, False, False], [False, True, True]])
    assert counted_for_coverage(mask).tolist() == [[True, True, False], [False, False, False]]
