"""A loop's product with one weight: autograd's own values and gradients, by one product."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mtkit.nn.loop import LoopLinear


def recurrence(product, x: Tensor, n_steps: int) -> Tensor:
    states = []
    for _ in range(n_steps):
        x = torch.tanh(product(x))
        states.append(x)
    return torch.stack(states)


def test_values_and_gradients_are_those_of_a_linear_layer() -> None:
    torch.manual_seed(1)
    weight = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    found = recurrence(LoopLinear(weight), x, 6)
    expected = recurrence(lambda state: F.linear(state, weight), x, 6)
    torch.testing.assert_close(found, expected)
    upstream = torch.randn_like(found)
    actual = torch.autograd.grad(found, [weight, x], upstream)
    wanted = torch.autograd.grad(expected, [weight, x], upstream)
    for one, other in zip(actual, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_two_loops_with_one_weight_add_their_gradients() -> None:
    torch.manual_seed(2)
    weight = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 4, dtype=torch.float64)
    both = recurrence(LoopLinear(weight), x, 2).sum() + recurrence(LoopLinear(weight), x, 5).sum()
    both.backward()
    expected = torch.autograd.grad(
        sum(recurrence(lambda state: F.linear(state, weight), x, n).sum() for n in (2, 5)), weight
    )[0]
    torch.testing.assert_close(weight.grad, expected)


def test_a_use_without_a_gradient_counts_for_nothing() -> None:
    """A step whose result is thrown away comes back with nothing."""
    torch.manual_seed(3)
    weight = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 4, dtype=torch.float64)
    product = LoopLinear(weight)
    kept, _ = product(x), product(2 * x)
    kept.sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(0).expand(4, 4))


@pytest.mark.parametrize("asked", ["all", "inputs"])
def test_nothing_is_kept_once_the_gradients_are_there(asked: str) -> None:
    """Without waiting for a search for cycles: what a loop read would fill a GPU's memory before there is one."""
    weight = torch.randn(4, 4, requires_grad=True)
    x = torch.randn(3, 4, requires_grad=True)
    gc.disable()
    try:
        loop = LoopLinear(weight)
        read = torch.tanh(loop(x))
        states = loop(read)
        kept = [weakref.ref(each) for each in (loop, read, states)]
        torch.autograd.grad(states.sum(), [weight, x] if asked == "all" else [x])
        del loop, read, states
        assert [each() for each in kept] == [None, None, None]
    finally:
        gc.enable()
