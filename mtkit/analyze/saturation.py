"""How a softmax over dot products saturates as vectors widen, and what dividing by a temperature changes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

NO_GRADIENT = 0.01  # norm of the Jacobian below which a query is said to have none


class Saturation(NamedTuple):
    """Softmax weights of queries over keys, all components drawn from N(0, 1)."""

    mean: float  # of q . k / temperature
    mean_error: float  # its standard error
    variance: float
    variance_error: float  # its standard error
    largest_weight: float  # mean over the queries
    entropy: float  # nats, mean over the queries
    n_noticed: float  # keys with a weight above 0.1, mean over the queries
    median_jacobian: float  # Frobenius norm of d weights / d energies
    share_without_gradient: float  # queries whose Jacobian has a norm below NO_GRADIENT


def measure_saturation(
    d_k: int, *, temperature: float | None = None, n_keys: int = 64, n_queries: int = 4000, seed: int = 1
) -> Saturation:
    """Draw queries and keys of width d_k; `temperature` divides the products, by default nothing does.

    sqrt(d_k) is the Transformer's temperature (Vaswani et al. 2017, §3.2.1). Every query has keys of its own, so that
    the products of two queries are independent.
    """
    generator = torch.Generator().manual_seed(seed)
    energies = []
    for _ in range(n_queries // 200):  # as much as fits into a small memory at once
        queries = torch.randn(200, 1, d_k, generator=generator, dtype=torch.float64)
        keys = torch.randn(200, n_keys, d_k, generator=generator, dtype=torch.float64)
        energies.append((queries * keys).sum(-1))
    energy = torch.cat(energies) / (temperature or 1.0)
    weights = energy.softmax(-1)
    norms = jacobian_norms(weights)
    # Products of one query with its keys share the query: the sample is one of queries.
    means, squares = energy.mean(1), energy.square().mean(1)
    return Saturation(
        means.mean().item(),
        (means.std() / math.sqrt(len(means))).item(),
        squares.mean().item(),
        (squares.std() / math.sqrt(len(squares))).item(),
        weights.amax(-1).mean().item(),
        entropy(weights).mean().item(),
        (weights > 0.1).double().sum(-1).mean().item(),
        norms.median().item(),
        (norms < NO_GRADIENT).double().mean().item(),
    )


def entropy(weights: Tensor) -> Tensor:
    """Nats, of distributions in the last dimension; a weight of 0 adds nothing."""
    return torch.special.entr(weights).sum(-1)


def jacobian_norms(weights: Tensor) -> Tensor:
    """Frobenius norm of d softmax / d energies = diag(a) - a a^T, [rows] for weights a [rows, keys].

    The sum of the squares is sum a_i^2 - 2 sum a_i^3 + (sum a_i^2)^2.
    """
    squares, cubes = weights.square().sum(-1), weights.pow(3).sum(-1)
    return (squares - 2 * cubes + squares.square()).clamp_min(0).sqrt()
