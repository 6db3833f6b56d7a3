"""Closed forms of costs against counters, exponents and paths against cases that are known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mtkit.analyze.attention_cost import attention_cost
from mtkit.analyze.complexity import (
    attention_flops,
    convolution_flops,
    counted_flops,
    exponent,
    feed_forward_flops,
    path_length,
    reaches,
    receptive_field,
    recurrent_flops,
    training_cost,
)
from mtkit.models.transformer import Config, FeedForward
from mtkit.nn.attention import MultiHeadAttention
from mtkit.nn.convolution import GatedConvolution


def test_stages_of_attention_add_up_to_what_is_counted() -> None:
    n, d = 12, 16
    assert attention_flops(n, d) == (6 * n * d * d, 2 * n * n * d, 2 * n * n * d, 2 * n * d * d)
    attention = MultiHeadAttention(d, 4)
    x = torch.randn(1, n, d)

    def run() -> None:
        queries, memory = attention.project_all(x)
        attention.attend(queries, memory, None)

    assert counted_flops(run) == attention_flops(n, d).total


def test_feed_forward_and_convolution_cost_what_is_counted() -> None:
    n, d = 10, 16
    block = FeedForward(Config(d_model=d, d_ff=4 * d, n_heads=2))
    assert counted_flops(lambda: block(torch.randn(1, n, d))) == feed_forward_flops(n, d) == 16 * n * d * d
    layer = GatedConvolution(d, d, 3, causal=True)
    assert counted_flops(lambda: layer(torch.randn(1, n, d))) == convolution_flops(n, d, 3)


def test_recurrence_costs_two_products_a_step() -> None:
    assert recurrent_flops(7, 5) == 7 * 4 * 25
    assert recurrent_flops(7, 5, n_gates=4) == 4 * recurrent_flops(7, 5)


def test_an_exponent_is_the_slope_of_logarithms() -> None:
    assert exponent([1, 2, 4, 8], [5, 20, 80, 320]) == pytest.approx(2)
    assert exponent([10, 100], [3, 3]) == pytest.approx(0)


def causal_sum(width: int) -> nn.Module:
    """Each position reads itself and `width` before it."""

    class Sum(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return sum(
                torch.cat([x.new_zeros(1, k, x.size(2)), x[:, : x.size(1) - k]], dim=1) for k in range(width + 1)
            )

    return Sum()


def test_reaches_tells_which_positions_a_layer_reads() -> None:
    found = reaches(causal_sum(1), 4, 3)
    assert found == [
        [True, False, False, False],
        [True, True, False, False],
        [False, True, True, False],
        [False, False, True, True],
    ]


def test_a_receptive_field_is_what_the_middle_output_reads() -> None:
    """CH-123: two layers that read themselves and three before, 1 + 2 x 3; what lies beyond the ends is not read."""
    stack = nn.Sequential(causal_sum(3), causal_sum(3))
    assert receptive_field(stack, 30, 2) == 7
    assert receptive_field(stack, 9, 2) == 5


def test_the_path_is_as_many_layers_as_the_distance_asks_for() -> None:
    """CH-122: nine steps, three a layer."""
    stack = lambda n_layers: nn.Sequential(*[causal_sum(3) for _ in range(n_layers)])  # noqa: E731
    assert path_length(stack, 10, 2, 8) == 3
    assert path_length(stack, 10, 2, 2) is None


def test_training_costs_are_those_of_the_paper() -> None:
    """CH-126: base 12 hours on 8 P100, 3.3e18; big 3.5 days, 2.3e19."""
    assert training_cost(12, 8, "P100") == pytest.approx(3.3e18, rel=0.01)
    assert training_cost(84, 8, "P100") == pytest.approx(2.3e19, rel=0.01)


def test_the_cost_of_attention_is_measured_in_a_process_of_its_own() -> None:
    """The matrix of 2,048 positions takes 16 MiB, its softmax as much; in blocks there is none."""
    whole, blocks = attention_cost(2048, "whole"), attention_cost(2048, "blocks")
    assert whole.seconds > 0 and blocks.seconds > 0
    assert whole.peak_mib > 16
    assert blocks.peak_mib < whole.peak_mib / 2
