"""What the division by sqrt(d_k) is for (Vaswani et al. 2017, §3.2.1, footnote 4), on random queries and keys."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from mtkit.nn.attention import attention_weights

N_KEYS = 64


def draw(d_k: int, n_queries: int) -> tuple[Tensor, Tensor]:
    """Components from N(0, 1): a key set for every ten queries."""
    generator = torch.Generator().manual_seed(d_k)
    queries = torch.randn(n_queries // 10, 1, 10, d_k, generator=generator)
    return queries, torch.randn(n_queries // 10, 1, N_KEYS, d_k, generator=generator)


def entropy(weights: Tensor) -> Tensor:
    """In nats, of each row."""
    return torch.special.entr(weights).sum(-1)


def jacobian_norm(weights: Tensor) -> Tensor:
    """Frobenius norm of d softmax / d logits = diag(w) - w w^T, of each row."""
    squares = weights.square().sum(-1)
    return (squares - 2 * weights.pow(3).sum(-1) + squares.square()).clamp(min=0).sqrt()


@pytest.mark.parametrize("d_k", [4, 16, 64, 256, 512])
def test_a_product_has_mean_0_and_variance_d_k(d_k: int) -> None:
    """CH-61: within 3 standard errors; a product's fourth moment is 9 d_k + 3 d_k (d_k - 1)."""
    n = 20_000
    generator = torch.Generator().manual_seed(d_k)
    queries, keys = (torch.randn(n, d_k, generator=generator, dtype=torch.float64) for _ in range(2))
    products = (queries * keys).sum(1)
    assert abs(products.mean().item()) <= 3 * math.sqrt(d_k / n)
    fourth_moment = 9 * d_k + 3 * d_k * (d_k - 1)
    assert abs(products.var().item() - d_k) <= 3 * math.sqrt((fourth_moment - d_k**2) / n)


@pytest.mark.parametrize("d_k", [4, 16, 64, 256, 512])
def test_what_the_softmax_gets_has_variance_1(d_k: int) -> None:
    """CH-61: log weights are the scaled products, up to a number for each query that a variance does not see."""
    queries, keys = draw(d_k, 1000)
    energy = attention_weights(queries, keys, None).double().log()
    by_key_set = energy.var(-1).mean((1, 2))  # queries of one set are not independent, sets are
    standard_error = by_key_set.std().item() / math.sqrt(len(by_key_set))
    assert abs(by_key_set.mean().item() - 1) <= 3 * standard_error
    assert standard_error < 0.2


def test_without_the_scale_the_softmax_saturates_as_heads_widen() -> None:
    """CH-62: the largest weight rises, the entropy falls; with the scale both stay where they are."""
    highest, entropies = {}, {}
    for scaled in (False, True):
        rows = [attention_weights(*draw(d_k, 2000), None, None if scaled else 1.0) for d_k in (1, 4, 16, 64, 256, 512)]
        highest[scaled] = [weights.amax(-1).mean().item() for weights in rows]
        entropies[scaled] = [entropy(weights).mean().item() for weights in rows]
    assert highest[False] == sorted(highest[False])
    assert entropies[False] == sorted(entropies[False], reverse=True)
    assert highest[False][0] < 0.15
    assert highest[False][-1] > 0.9
    assert entropies[False][0] > 3.5
    assert entropies[False][-1] < 0.3
    assert max(highest[True]) < 0.15
    assert min(entropies[True]) > 3.5


def test_the_norm_of_the_jacobian_by_differentiation() -> None:
    logits = torch.randn(5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = jacobian(lambda x: x.softmax(0), logits).norm()
    assert torch.allclose(jacobian_norm(logits.softmax(0)), expected)


def test_a_saturated_softmax_passes_no_gradient() -> None:
    """CH-63: the share of queries whose Jacobian is nearly 0. (Its median first rises, so it shows nothing.)"""
    shares = {
        scaled: [
            (jacobian_norm(attention_weights(*draw(d_k, 2000), None, None if scaled else 1.0).double()) < 0.01)
            .double()
            .mean()
            .item()
            for d_k in (1, 16, 64, 256, 512)
        ]
        for scaled in (False, True)
    }
    assert shares[False] == sorted(shares[False])
    assert shares[False][0] == 0
    assert 0.5 < shares[False][-1] < 0.65
    assert set(shares[True]) == {0}


def test_a_higher_temperature_is_flatter_and_a_lower_one_sharper() -> None:
    """CH-65, for softmax(x / tau)"""
    logits = torch.randn(2000, 1, N_KEYS, 1, generator=torch.Generator().manual_seed(7))
    rows = [attention_weights(torch.ones(2000, 1, 1, 1), logits, None, 1 / tau) for tau in (0.01, 0.1, 0.5, 1, 4, 100)]
    entropies = [entropy(weights).mean().item() for weights in rows]
    highest = [weights.amax(-1).mean().item() for weights in rows]
    assert entropies == sorted(entropies)
    assert highest == sorted(highest, reverse=True)
    assert highest[0] > 0.95
    assert entropies[-1] == pytest.approx(math.log(N_KEYS), abs=1e-3), "uniform"


def test_the_scale_is_a_temperature_of_the_root_of_d_k() -> None:
    """CH-65: softmax(Q K^T / sqrt(d_k)), and no scale is a temperature of 1."""
    d_k = 16
    queries, keys = draw(d_k, 50)
    products = (queries @ keys.transpose(-2, -1)).double()
    expected = torch.softmax(products / math.sqrt(d_k), -1).float()
    assert torch.allclose(attention_weights(queries, keys, None), expected, rtol=0, atol=1e-6)
    assert torch.allclose(
        attention_weights(queries, keys, None, 1.0), torch.softmax(products, -1).float(), rtol=0, atol=1e-5
    )
    unscaled = attention_weights(queries / math.sqrt(d_k), keys, None, 1.0)
    assert torch.allclose(unscaled, expected, rtol=0, atol=1e-6)
