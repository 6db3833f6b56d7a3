from __future__ import annotations

import math

import pytest
import torch

from mtkit.errors import RequestError
from mtkit.search import LengthPenalty


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
