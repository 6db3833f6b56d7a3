"""Scaled dot-product and multi-head attention, against the equations and against torch's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from mtkit.nn import attention
from mtkit.nn.attention import (
    KeysValues,
    MultiHeadAttention,
    attention_weights,
    join_heads,
    split_heads,
    weighted_sum,
)
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


def random_module(d_model: int, n_heads: int, d_key: int | None = None) -> MultiHeadAttention:
    torch.manual_seed(5)
    module = MultiHeadAttention(d_model, n_heads, d_key=d_key).eval()
    with torch.no_grad():  # zero biases would hide a bias that is left out
        for linear in (module.query, module.key_value, module.output):
            linear.bias.normal_()
    return module


def test_weights_are_the_softmax_of_scaled_products() -> None:
    """CH-59"""
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
    """CH-59, against torch.nn.functional.scaled_dot_product_attention"""
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
    """CH-59, against float64"""
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


@pytest.mark.parametrize("d_key", [D_HEAD, 1, 7])
def test_heads_together_equal_the_sum_of_single_heads(d_key: int) -> None:
    """CH-76: Concat(head_1, …) W^O = sum of head_i W^O_i, each head with its own rows of the projections.

    CH-81: also where queries and keys are narrower or wider than values.
    """
    module = random_module(HEADS * D_HEAD, HEADS, d_key)
    x = draw(BATCH, N_KEYS, HEADS * D_HEAD, seed=4)
    mask = key_pad_mask(pad_mask())
    queries, memory = module.project_all(x)
    together, _ = module.attend(queries, memory, mask)
    total = module.output.bias.detach().numpy().astype(np.float64)
    key_weight, value_weight = module.key_value.weight.split([HEADS * d_key, HEADS * D_HEAD])
    key_bias, value_bias = module.key_value.bias.split([HEADS * d_key, HEADS * D_HEAD])
    for head in range(HEADS):
        rows, key_rows = (slice(head * width, (head + 1) * width) for width in (D_HEAD, d_key))
        queries, keys, values = (
            F.linear(x, weight[its_rows], bias[its_rows])[:, None]
            for weight, bias, its_rows in (
                (module.query.weight, module.query.bias, key_rows),
                (key_weight, key_bias, key_rows),
                (value_weight, value_bias, rows),
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


def attend_to_itself(module: MultiHeadAttention, x: Tensor) -> Tensor:
    """Self-attention without a mask, x [batch, length, d_model]."""
    queries, memory = module.project_all(x)
    return module.attend(queries, memory, None)[0]


def test_shapes_of_single_head_self_attention() -> None:
    """CH-58: queries, keys and values [T, d_k], weights [T, T] whose rows sum to 1, output [T, d_v]."""
    module = random_module(D_HEAD, 1)
    queries, memory = module.project_all(draw(1, N_KEYS, D_HEAD, seed=4))
    assert queries.shape == memory.keys.shape == memory.values.shape == (1, 1, N_KEYS, D_HEAD)
    weights = attention_weights(queries, memory.keys, None)
    assert weights.shape == (1, 1, N_KEYS, N_KEYS)
    assert torch.allclose(weights.sum(-1), torch.ones(1, 1, N_KEYS))
    values = memory.values[..., :3]  # d_v need not be d_k
    assert weighted_sum(weights, values).shape == (1, 1, N_KEYS, 3)


def test_order_means_nothing_to_self_attention() -> None:
    """CH-60: permuted positions give permuted outputs."""
    module = random_module(HEADS * D_HEAD, HEADS)
    x = draw(BATCH, N_KEYS, HEADS * D_HEAD, seed=4)
    order = torch.tensor([3, 6, 0, 1, 5, 2, 4])
    found = attend_to_itself(module, x[:, order])
    assert torch.allclose(found, attend_to_itself(module, x)[:, order], rtol=0, atol=1e-5)
    assert not torch.allclose(found, attend_to_itself(module, x), rtol=0, atol=1e-2)


def test_two_projections_allow_one_sided_relations() -> None:
    """CH-68: q_i . k_j and q_j . k_i differ; they cannot where W^Q = W^K."""
    module = random_module(HEADS * D_HEAD, HEADS)
    x = draw(BATCH, N_KEYS, HEADS * D_HEAD, seed=4)
    queries, memory = module.project_all(x)
    energy = queries @ memory.keys.transpose(-2, -1)
    assert (energy - energy.transpose(-2, -1)).abs().amax((-2, -1)).min() > 1
    with torch.no_grad():
        module.query.weight.copy_(module.key_value.weight.chunk(2)[0])
        module.query.bias.copy_(module.key_value.bias.chunk(2)[0])
    queries, memory = module.project_all(x)
    energy = queries @ memory.keys.transpose(-2, -1)
    assert torch.allclose(energy, energy.transpose(-2, -1), rtol=0, atol=1e-4)


def test_every_position_reaches_every_other_in_one_layer() -> None:
    """CH-72: by gradients, d output_i / d input_j is nowhere 0."""
    module = random_module(HEADS * D_HEAD, HEADS)
    x = draw(1, 12, HEADS * D_HEAD, seed=4)
    slopes = jacobian(lambda inputs: attend_to_itself(module, inputs)[0].sum(-1), x)[:, 0]
    assert slopes.shape == (12, 12, HEADS * D_HEAD)
    assert slopes.norm(dim=-1).min() > 1e-4


def test_all_positions_at_once_give_what_one_at_a_time_gives() -> None:
    """CH-73"""
    module = random_module(HEADS * D_HEAD, HEADS)
    x = draw(BATCH, N_KEYS, HEADS * D_HEAD, seed=4)
    queries, memory = module.project_all(x)
    together, _ = module.attend(queries, memory, causal_mask(N_KEYS))
    for position in range(N_KEYS):
        one = module.project_queries(x[:, position : position + 1])
        seen = module.project_keys_values(x[:, : position + 1])
        alone, _ = module.attend(one, seen, None)
        assert torch.allclose(alone[:, 0], together[:, position], rtol=0, atol=1e-5)


def test_the_number_of_operations_does_not_grow_with_the_length() -> None:
    """CH-73: nothing waits for another position, whatever the length."""

    class Counter(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.count += 1
            return func(*args, **(kwargs or {}))

    module = random_module(HEADS * D_HEAD, HEADS)
    counts = []
    for length in (2, 100):
        x = draw(1, length, HEADS * D_HEAD, seed=4)
        with Counter() as counter:
            attend_to_itself(module, x)
        counts.append(counter.count)
    assert counts[0] == counts[1] > 0


def test_the_output_projection_alone_mixes_heads() -> None:
    """CH-77: block i of the output does not know the values of head j != i, unless W^O mixes them."""
    module = random_module(HEADS * D_HEAD, HEADS)
    queries, keys = draw(1, HEADS, 2, D_HEAD, seed=1), draw(1, HEADS, 3, D_HEAD, seed=2)
    values = draw(1, HEADS, 3, D_HEAD, seed=3)

    def influence() -> Tensor:
        """[output block, head]: the largest slope of one in the other's values."""
        slopes = jacobian(lambda values: module.attend(queries, KeysValues(keys, values), None)[0][0, 0], values)
        return slopes.view(HEADS, D_HEAD, HEADS, -1).abs().amax((1, 3))

    assert influence().min() > 1e-3
    with torch.no_grad():
        module.output.weight.copy_(torch.eye(HEADS * D_HEAD))
    without = influence()
    assert without.diagonal().min() > 1e-3
    assert without[~torch.eye(HEADS, dtype=torch.bool)].eq(0).all()


@pytest.mark.parametrize("block", [1, 16, 200])
def test_attention_block_by_block_is_the_same_attention(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """CH-91: a softmax kept up over blocks of keys, which never holds the n x n matrix, gives what both paths give."""
    length = 200
    module = random_module(HEADS * D_HEAD, HEADS)
    queries, keys, values = (3 * draw(1, HEADS, length, D_HEAD, seed=seed) for seed in (1, 2, 3))
    mask = causal_mask(length)
    q, k, v = queries.double() / math.sqrt(D_HEAD), keys.double(), values.double()
    highest = torch.full((1, HEADS, length, 1), -math.inf, dtype=torch.float64)
    total, context = torch.zeros_like(highest), torch.zeros_like(v)
    for start in range(0, length, block):
        part = slice(start, start + block)
        energy = (q @ k[:, :, part].transpose(-2, -1)).masked_fill(mask[:, part], -math.inf)
        new_highest = torch.maximum(highest, energy.amax(-1, keepdim=True))
        shrink, exponential = (highest - new_highest).exp(), (energy - new_highest).exp()
        total = total * shrink + exponential.sum(-1, keepdim=True)
        context = context * shrink + exponential @ v[:, :, part]
        highest = new_highest
    expected = module.output(join_heads(context / total).float())
    for limit in (1000, 0):
        monkeypatch.setattr(attention, "_PLAIN_BELOW", limit)
        found, _ = module.attend(queries, KeysValues(keys, values), mask)
        assert torch.allclose(found, expected, rtol=0, atol=2e-5)
