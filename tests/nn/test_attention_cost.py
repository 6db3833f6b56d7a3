"""Floating-point operations and parameters of attention, counted on the layers; a multiply-add is two operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mtkit.models.transformer import Config, FeedForward
from mtkit.nn.attention import LatentAttention, MultiHeadAttention, attention_weights, weighted_sum

# Lengths stay where the plain products are used: the counter does not know torch's fused kernel on a CPU.


def flops(run: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run()
    return counter.get_total_flops()


def self_attention_flops(module: MultiHeadAttention, n: int) -> int:
    def run() -> None:
        queries, memory = module.project_all(torch.zeros(1, n, module.query.in_features))
        module.attend(queries, memory, None)

    return flops(run)


def feed_forward_flops(n: int, d: int) -> int:
    layer = FeedForward(Config(d_model=d, d_ff=4 * d, n_heads=1))
    return flops(lambda: layer(torch.zeros(1, n, d)))


@pytest.mark.parametrize("n", [1, 7, 100])
@pytest.mark.parametrize(("d", "n_heads"), [(64, 1), (64, 8), (48, 3)])
def test_attention_costs_what_the_formula_says(n: int, d: int, n_heads: int) -> None:
    """CH-87: 8 n d^2 + 4 n^2 d; a head's share before the output projection, 6 n d d_k + 4 n^2 d_k."""
    module = MultiHeadAttention(d, n_heads)
    total = self_attention_flops(module, n)
    assert total == 8 * n * d**2 + 4 * n**2 * d
    output = flops(lambda: module.output(torch.zeros(1, n, d)))
    d_k = d // n_heads
    assert total - output == n_heads * (6 * n * d * d_k + 4 * n**2 * d_k)


def test_the_stages_of_attention_cost_what_the_figure_says() -> None:
    """CH-88: projections 6 n d^2, scores 2 n^2 d, weighted sum 2 n^2 d, output 2 n d^2."""
    n, d = 10, 32
    module = MultiHeadAttention(d, 4)
    x = torch.randn(1, n, d)
    queries, (keys, values) = module.project_all(x)
    weights = attention_weights(queries, keys, None)
    stages = [
        lambda: module.project_all(x),
        lambda: attention_weights(queries, keys, None),
        lambda: weighted_sum(weights, values),
        lambda: module.output(x),
    ]
    assert list(map(flops, stages)) == [6 * n * d**2, 2 * n**2 * d, 2 * n**2 * d, 2 * n * d**2]


@pytest.mark.parametrize(("n", "d"), [(1, 16), (10, 16), (32, 16), (25, 64)])
def test_the_feed_forward_block_costs_what_the_formula_says(n: int, d: int) -> None:
    """CH-89: 16 n d^2 with an inner width of 4 d."""
    assert feed_forward_flops(n, d) == 16 * n * d**2


@pytest.mark.parametrize(
    ("n", "d", "at_512", "ratio"),
    [
        (25, 256, 50, 0.52),
        (25, 128, 100, 0.55),
        (75, 256, 150, 0.57),
        (25, 64, 200, 0.60),
        (64, 64, 512, 0.75),
        (64, 32, 1024, 1.00),
        (64, 16, 2048, 1.50),
        (64, 8, 4096, 2.50),
    ],
)
def test_attention_is_half_as_dear_as_the_feed_forward_block_or_dearer(
    n: int, d: int, at_512: int, ratio: float
) -> None:
    """CH-89: (8 + 4 n/d) / 16, so equal at n = 2d and not at 100 to 200 tokens of a model of 512."""
    assert n * 512 == at_512 * d, "the ratio depends on n / d alone"
    found = self_attention_flops(MultiHeadAttention(d, 2), n) / feed_forward_flops(n, d)
    assert found == pytest.approx(ratio, abs=0.005)


def test_the_number_of_heads_changes_neither_size_nor_cost() -> None:
    """CH-78"""
    modules = [MultiHeadAttention(64, n_heads) for n_heads in (1, 4, 8, 16, 32)]
    assert {sum(p.numel() for p in module.parameters()) for module in modules} == {4 * 64**2 + 4 * 64}
    assert {self_attention_flops(module, 20) for module in modules} == {8 * 20 * 64**2 + 4 * 20**2 * 64}


def test_three_projections_and_the_output_projection() -> None:
    """CH-71: 3 d^2 weights and another d^2, each column with a bias."""
    d = 24
    module = MultiHeadAttention(d, 4)
    assert module.query.weight.numel() + module.key_value.weight.numel() == 3 * d**2
    assert module.output.weight.numel() == d**2
    assert sum(p.numel() for name, p in module.named_parameters() if name.endswith("bias")) == 4 * d


@pytest.mark.parametrize("n_groups", [1, 2, 8])
def test_heads_that_share_keys_cost_less_to_project_and_the_same_to_attend(n_groups: int) -> None:
    """CH-85: g of h heads project 4 n d g d_k instead of 4 n d^2; each query still meets each key."""
    n, d, n_heads = 9, 32, 8
    module = MultiHeadAttention(d, n_heads, n_groups=n_groups)
    shared = n_groups * d // n_heads
    assert sum(p.numel() for p in module.parameters()) == 2 * (d * d + d) + 2 * (d * shared + shared)
    assert self_attention_flops(module, n) == 4 * n * d**2 + 4 * n * d * shared + 4 * n**2 * d


def test_latent_attention_costs_what_its_products_say() -> None:
    """CH-85: queries and output 4 n d^2, the latent 2 n d d_c, U and V on queries and context 4 n d d_c, then all heads
    attend over d_c columns instead of d_k: 4 n^2 h d_c."""
    n, d, n_heads, d_latent = 9, 32, 4, 12
    module = LatentAttention(d, n_heads, d_latent=d_latent)
    assert sum(p.numel() for p in module.parameters()) == 2 * (d * d + d) + 3 * d * d_latent
    by_hand = 4 * n * d**2 + 6 * n * d * d_latent + 4 * n**2 * n_heads * d_latent
    assert self_attention_flops(module, n) == by_hand
