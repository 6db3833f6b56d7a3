"""Scaled dot-product and multi-head attention, against the equations and against torch's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mtkit.nn import attention
from mtkit.nn.attention import KeysValues, MultiHeadAttention, attention_weights, join_heads, split_heads
from mtkit.nn.masks import causal_mask, key_pad_mask

BATCH, HEADS, N_QUERIES, N_KEYS, D_HEAD = 3, 4, 5, 7, 8
LENGTHS = torch.tensor([7, 4, 1])


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pad_mask() -> Tensor:
    """[BATCH, N_KEYS]"""
    return torch.arange(N_KEYS) >= LENGTHS[:, None]


def numpy_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Vaswani et al. (2017), eq. 1, in float64: weights and context."""
    q, k, v = (tensor.detach().numpy().astype(np.float64) for tensor in (queries, keys, values))
    energy = np.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    energy = np.where(np.broadcast_to(mask.numpy(), energy.shape), -np.inf, energy)
    exponential = np.exp(energy - energy.max(-1, keepdims=True))
    weights = exponential / exponential.sum(-1, keepdims=True)
    return weights, np.einsum("bhqk,bhkd->bhqd", weights, v)


def with_weights_of(module: MultiHeadAttention) -> nn.MultiheadAttention:
    """torch's own module with the same weights."""
    d_model = module.query.in_features
    reference = nn.MultiheadAttention(d_model, module.n_heads, batch_first=True).eval()
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([module.query.weight, module.key_value.weight]))
        reference.in_proj_bias.copy_(torch.cat([module.query.bias, module.key_value.bias]))
        reference.out_proj.weight.copy_(module.output.weight)
        reference.out_proj.bias.copy_(module.output.bias)
    return reference


def random_module(d_model: int, n_heads: int) -> MultiHeadAttention:
    torch.manual_seed(5)
    module = MultiHeadAttention(d_model, n_heads).eval()
    with torch.no_grad():  # zero biases would hide a bias that is left out
        for linear in (module.query, module.key_value, module.output):
            linear.bias.normal_()
    return module


def test_weights_are_the_softmax_of_scaled_products() -> None:
    queries, keys = draw(BATCH, HEADS, N_QUERIES, D_HEAD, seed=1), draw(BATCH, HEADS, N_KEYS, D_HEAD, seed=2)
    mask = key_pad_mask(pad_mask())
    expected, _ = numpy_attention(queries, keys, keys, mask)
    assert np.allclose(attention_weights(queries, keys, mask).numpy(), expected, rtol=0, atol=1e-6)


def test_one_query_and_two_keys_by_hand() -> None:
    # d_k = 4, so energies are halved: q·k = 2 ln 3 and 0 give energies ln 3 and 0, weights 3/4 and 1/4
    queries = torch.tensor([2 * math.log(3), 0, 0, 0]).view(1, 1, 1, 4)
    keys = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0]]).view(1, 1, 2, 4)
    assert attention_weights(queries, keys, None).flatten().tolist() == pytest.approx([0.75, 0.25], abs=1e-6)


def test_the_mask_gets_exactly_nothing_and_the_rest_sums_to_one() -> None:
    queries, keys = draw(BATCH, HEADS, N_QUERIES, D_HEAD, seed=1), draw(BATCH, HEADS, N_KEYS, D_HEAD, seed=2)
    weights = attention_weights(queries, keys, key_pad_mask(pad_mask()))
    masked = key_pad_mask(pad_mask()).expand_as(weights)
    assert weights[masked].eq(0).all()
    assert torch.allclose(weights.sum(-1), torch.ones(BATCH, HEADS, N_QUERIES))
    assert weights[2, :, :, 0].eq(1).all(), "a single key takes all"


def test_a_position_that_sees_itself_alone_attends_to_itself_fully() -> None:
    positions = draw(BATCH, HEADS, N_KEYS, D_HEAD, seed=3)
    weights = attention_weights(positions, positions, causal_mask(N_KEYS))
    assert weights[:, :, 0, 0].eq(1).all()
    assert weights.triu(1).eq(0).all()


def test_energies_far_below_zero_in_half_precision_stay_finite() -> None:
    # The smallest finite number as a mask would overflow here: finfo(float16).min - 20 is -inf.
    queries = torch.full((1, 1, 3, 1), -20.0, dtype=torch.float16)
    keys = torch.ones(1, 1, 3, 1, dtype=torch.float16)
    weights = attention_weights(queries, keys, causal_mask(3) | torch.tensor([False, False, True]))
    expected = torch.tensor([[1, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]])
    assert weights.dtype == torch.float32
    assert torch.allclose(weights[0, 0], expected)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("kind", ["causal", "cross", "step"])
def test_plain_and_fused_path_and_torch_agree(
    monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype, tolerance: float
) -> None:
    module = random_module(HEADS * D_HEAD, HEADS).to(dtype)
    n_queries = {"causal": N_KEYS, "cross": N_QUERIES, "step": 1}[kind]
    mask = causal_mask(N_KEYS) if kind == "causal" else key_pad_mask(pad_mask())
    queries = draw(BATCH, HEADS, n_queries, D_HEAD, seed=1).to(dtype)
    memory = KeysValues(*(draw(BATCH, HEADS, N_KEYS, D_HEAD, seed=seed).to(dtype) for seed in (2, 3)))
    plain, _ = module.attend(queries, memory, mask)
    monkeypatch.setattr(attention, "_PLAIN_BELOW", 0)
    fused, _ = module.attend(queries, memory, mask)
    torchs = module.output(join_heads(F.scaled_dot_product_attention(queries, *memory, attn_mask=~mask)))
    # In bf16 the output layer adds its own rounding, relative to values of a few units.
    scale = max(1.0, torchs.abs().max().item()) if dtype == torch.bfloat16 else 1.0
    assert (plain - fused).abs().max() <= tolerance * scale
    assert (plain - torchs).abs().max() <= tolerance * scale


def test_context_is_that_of_the_equation_on_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    module = random_module(HEADS * D_HEAD, HEADS)
    with torch.no_grad():
        module.output.weight.copy_(torch.eye(HEADS * D_HEAD))
        module.output.bias.zero_()
    queries = draw(BATCH, HEADS, N_QUERIES, D_HEAD, seed=1)
    memory = KeysValues(draw(BATCH, HEADS, N_KEYS, D_HEAD, seed=2), draw(BATCH, HEADS, N_KEYS, D_HEAD, seed=3))
    mask = key_pad_mask(pad_mask())
    weights, context = numpy_attention(queries, *memory, mask)
    for limit in (1000, 0):
        monkeypatch.setattr(attention, "_PLAIN_BELOW", limit)
        found, found_weights = module.attend(queries, memory, mask, need_weights=True)
        assert np.allclose(split_heads(found, HEADS).detach().numpy(), context, rtol=0, atol=1e-5)
        assert found_weights is not None
        assert np.allclose(found_weights.detach().numpy(), weights.mean(1), rtol=0, atol=1e-6)
        without, none = module.attend(queries, memory, mask)
        assert none is None
        assert torch.allclose(without, found, rtol=0, atol=1e-5), "asking for weights changes nothing else"


def test_splitting_and_joining_heads() -> None:
    x = torch.arange(2 * 3 * 6).view(2, 3, 6)
    heads = split_heads(x, 2)
    assert heads.shape == (2, 2, 3, 3)
    assert heads[1, 1, 2].tolist() == [33, 34, 35], "the second head has the second half of the columns"
    assert torch.equal(join_heads(heads), x)


def test_one_product_for_all_projections_equals_separate_ones() -> None:
    module = random_module(HEADS * D_HEAD, HEADS)
    x = draw(BATCH, N_KEYS, HEADS * D_HEAD, seed=4)
    queries, memory = module.project_all(x)
    separate = module.project_keys_values(x)
    assert torch.allclose(queries, module.project_queries(x), rtol=0, atol=1e-6)
    assert torch.allclose(memory.keys, separate.keys, rtol=0, atol=1e-6)
    assert torch.allclose(memory.values, separate.values, rtol=0, atol=1e-6)


def test_heads_together_equal_the_sum_of_single_heads() -> None:
    """Concat(head_1, …) W^O = sum of head_i W^O_i, each head with its own rows of the projections."""
    module = random_module(HEADS * D_HEAD, HEADS)
    x = draw(BATCH, N_KEYS, HEADS * D_HEAD, seed=4)
    mask = key_pad_mask(pad_mask())
    queries, memory = module.project_all(x)
    together, _ = module.attend(queries, memory, mask)
    total = module.output.bias.detach().numpy().astype(np.float64)
    key_weight, value_weight = module.key_value.weight.chunk(2)
    key_bias, value_bias = module.key_value.bias.chunk(2)
    for head in range(HEADS):
        rows = slice(head * D_HEAD, (head + 1) * D_HEAD)
        queries, keys, values = (
            F.linear(x, weight[rows], bias[rows])[:, None]
            for weight, bias in (
                (module.query.weight, module.query.bias),
                (key_weight, key_bias),
                (value_weight, value_bias),
            )
        )
        _, context = numpy_attention(queries, keys, values, mask)
        total = total + context[:, 0] @ module.output.weight[:, rows].detach().numpy().astype(np.float64).T
    assert np.allclose(together.detach().numpy(), total, rtol=0, atol=1e-5)


def test_self_attention_equals_torchs_module() -> None:
    module = random_module(HEADS * D_HEAD, HEADS)
    x = draw(BATCH, N_KEYS, HEADS * D_HEAD, seed=4)
    expected, weights = with_weights_of(module)(x, x, x, key_padding_mask=pad_mask())
    queries, memory = module.project_all(x)
    found, found_weights = module.attend(queries, memory, key_pad_mask(pad_mask()), need_weights=True)
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)
    assert found_weights is not None
    assert torch.allclose(found_weights, weights, rtol=0, atol=1e-6)


def test_causal_and_cross_attention_equal_torchs_module() -> None:
    module = random_module(HEADS * D_HEAD, HEADS)
    reference = with_weights_of(module)
    x = draw(BATCH, N_KEYS, HEADS * D_HEAD, seed=4)
    expected, _ = reference(x, x, x, attn_mask=causal_mask(N_KEYS))
    queries, memory = module.project_all(x)
    assert torch.allclose(module.attend(queries, memory, causal_mask(N_KEYS))[0], expected, rtol=0, atol=1e-5)

    asking = draw(BATCH, N_QUERIES, HEADS * D_HEAD, seed=6)
    expected, _ = reference(asking, x, x, key_padding_mask=pad_mask())
    found, _ = module.attend(module.project_queries(asking), module.project_keys_values(x), key_pad_mask(pad_mask()))
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)


def test_dropout_on_the_weights_is_for_training_alone() -> None:
    module = random_module(HEADS * D_HEAD, HEADS)
    module.dropout.p = 0.5
    x = draw(BATCH, N_KEYS, HEADS * D_HEAD, seed=4)
    queries, memory = module.project_all(x)
    evaluated = module.attend(queries, memory, None)[0]
    assert torch.equal(module.attend(queries, memory, None)[0], evaluated)
    assert not torch.allclose(module.train().attend(queries, memory, None)[0], evaluated)


def test_masks_say_true_for_what_may_not_be_looked_at() -> None:
    assert causal_mask(3).tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    assert key_pad_mask(torch.tensor([[False, True]])).shape == (1, 1, 1, 2)
