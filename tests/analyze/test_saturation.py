"""Softmax saturation against the figures of the chapter's specification and plain definitions."""

from __future__ import annotations

import math

import pytest
import torch

from mtkit.analyze.saturation import entropy, jacobian_norms, measure_saturation


def test_the_norm_of_the_jacobian_is_that_of_the_matrix() -> None:
    weights = torch.randn(5, 7, dtype=torch.float64).softmax(-1)
    expected = [(torch.diag(row) - torch.outer(row, row)).norm() for row in weights]
    torch.testing.assert_close(jacobian_norms(weights), torch.stack(expected))


def test_entropy_is_0_for_one_choice_and_log_n_for_n() -> None:
    assert entropy(torch.tensor([1.0, 0.0, 0.0])).item() == 0
    assert entropy(torch.full((8,), 1 / 8)).item() == pytest.approx(math.log(8))


@pytest.mark.parametrize(
    ("d_k", "largest", "nats", "noticed", "jacobian", "gone"),
    [(1, 0.10, 3.74, 0.5, 0.15, 0.00), (16, 0.58, 1.39, 2.2, 0.33, 0.02), (64, 0.79, 0.58, 1.7, 0.20, 0.17)],
)
def test_unscaled_products_saturate(
    d_k: int, largest: float, nats: float, noticed: float, jacobian: float, gone: float
) -> None:
    """CH-62, CH-63: another Monte-Carlo run over 64 keys gave these figures to two digits."""
    found = measure_saturation(d_k)
    assert found.largest_weight == pytest.approx(largest, abs=0.015)
    assert found.entropy == pytest.approx(nats, abs=0.04)
    assert found.n_noticed == pytest.approx(noticed, abs=0.1)
    assert found.median_jacobian == pytest.approx(jacobian, abs=0.02)
    assert found.share_without_gradient == pytest.approx(gone, abs=0.02)


def test_products_have_variance_d_k_within_the_error_of_the_sample() -> None:
    """CH-61"""
    for d_k in (4, 64):
        found = measure_saturation(d_k)
        assert abs(found.variance - d_k) < 3 * found.variance_error
        assert abs(found.mean) < 3 * math.sqrt(d_k / (4000 * 64))


def test_dividing_by_the_root_of_d_k_keeps_the_softmax_open_at_every_width() -> None:
    for d_k in (16, 64):
        found = measure_saturation(d_k, temperature=math.sqrt(d_k))
        assert abs(found.variance - 1) < 3 * found.variance_error
        assert found.largest_weight == pytest.approx(0.11, abs=0.01)
        assert found.entropy == pytest.approx(3.69, abs=0.02)
        assert found.share_without_gradient == 0
