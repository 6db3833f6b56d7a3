"""Dropout: rate, scale, gradients, and what leaves it out."""

from __future__ import annotations

import math

import pytest
import torch

from mtkit.nn.dropout import Dropout

SIZE = 400_000


def dropped(p: float, seed: int = 1) -> torch.Tensor:
    torch.manual_seed(seed)
    return Dropout(p).train()(torch.ones(SIZE))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_the_share_kept_is_within_four_standard_errors(p: float) -> None:
    kept = dropped(p).ne(0).float().mean().item()
    assert abs(kept - (1 - p)) <= 4 * math.sqrt(p * (1 - p) / SIZE)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_what_is_kept_grows_so_that_the_expectation_is_exact(p: float) -> None:
    values = dropped(p).unique().tolist()
    # The keep probability is a multiple of 2^-16; the scale must be its very inverse.
    keep = 1 - round(p * 65536) / 65536
    assert len(values) == 2
    assert values[0] == 0
    assert values[1] * keep == pytest.approx(1, abs=1e-6)


def test_neighbours_fall_out_independently() -> None:
    """Four elements share one random number; no two of them may share their fate."""
    zero = dropped(0.5).eq(0).view(-1, 4).float() - 0.5
    correlation = zero.T @ zero / (SIZE / 4) / 0.25
    off_diagonal = correlation - torch.diag(correlation.diag())
    assert off_diagonal.abs().max() <= 4.5 / math.sqrt(SIZE / 4)


def test_gradients_pass_where_values_pass_and_with_the_same_scale() -> None:
    torch.manual_seed(2)
    x = torch.randn(37, 11, requires_grad=True)  # 407 elements, no multiple of four
    y = Dropout(0.4).train()(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.eq(0), y.eq(0))
    assert 0 < x.grad.eq(0).sum() < x.numel()
    assert torch.allclose(x.grad * x.detach(), y.detach())


def test_a_fresh_mask_each_time_that_follows_the_seed() -> None:
    torch.manual_seed(3)
    layer = Dropout(0.5).train()
    first, second = layer(torch.ones(1000)), layer(torch.ones(1000))
    torch.manual_seed(3)
    assert torch.equal(layer(torch.ones(1000)), first)
    assert torch.equal(layer(torch.ones(1000)), second)
    assert not torch.equal(first, second)


def test_the_random_state_brings_the_masks_back() -> None:
    layer = Dropout(0.5).train()
    torch.manual_seed(4)
    layer(torch.ones(7))
    state = torch.get_rng_state()
    expected = layer(torch.ones(100))
    torch.set_rng_state(state)
    assert torch.equal(layer(torch.ones(100)), expected)


def test_nothing_happens_in_evaluation_or_without_a_rate() -> None:
    x = torch.randn(50)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_the_type_stays() -> None:
    assert Dropout(0.5).train()(torch.ones(8, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, math.nan])
def test_a_rate_that_is_none_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="dropout probability must be at least 0 and below 1"):
        Dropout(p)
