"""Attention whose heads share keys and values, or make them from a latent vector, against attention that does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mtkit.nn import attention
from mtkit.nn.attention import (
    KeysValues,
    LatentAttention,
    MultiHeadAttention,
    attention_weights,
    split_heads,
    weighted_sum,
)
from mtkit.nn.masks import causal_mask, key_pad_mask

BATCH, HEADS, LENGTH, D_HEAD = 3, 4, 6, 8
D = HEADS * D_HEAD
D_LATENT = 10


def build(n_groups: int | None = None, *, d_key: int | None = None, scaled: bool = True) -> MultiHeadAttention:
    torch.manual_seed(5)
    module = MultiHeadAttention(D, HEADS, n_groups=n_groups, d_key=d_key, scaled=scaled).eval()
    with torch.no_grad():
        for linear in (module.query, module.key_value, module.output):
            linear.bias.normal_()
    return module


def build_latent(d_latent: int = D_LATENT, d_key: int | None = None) -> LatentAttention:
    torch.manual_seed(6)
    module = LatentAttention(D, HEADS, d_latent=d_latent, d_key=d_key).eval()
    with torch.no_grad():
        for linear in (module.query, module.output):
            linear.bias.normal_()
    return module


SHARING: dict[str, Callable[[], MultiHeadAttention]] = {
    "mqa": lambda: build(1),
    "gqa": lambda: build(2),
    "mla": build_latent,
    "narrow-keys": lambda: build(2, d_key=3),
}


def sequence() -> Tensor:
    return torch.randn(BATCH, LENGTH, D, generator=torch.Generator().manual_seed(4))


def attend(module: MultiHeadAttention, mask: Tensor | None, *, need_weights: bool = False) -> list[Tensor]:
    """The output of self-attention, and the weights where they are asked for."""
    queries, memory = module.project_all(sequence())
    found = module.attend(queries, memory, mask, need_weights=need_weights)
    return [part for part in found if part is not None]


def with_every_heads_own(module: MultiHeadAttention) -> MultiHeadAttention:
    """The module that gives each head a copy of its group's projections."""
    copied = build()
    repeats = HEADS // module.n_groups
    with torch.no_grad():
        for part in ("weight", "bias"):
            shared = getattr(module.key_value, part)
            by_group = shared.view(2, module.n_groups, D_HEAD, *shared.shape[1:])
            getattr(copied.key_value, part).copy_(
                by_group.repeat_interleave(repeats, 1).reshape(2 * D, *shared.shape[1:])
            )
            getattr(copied.query, part).copy_(getattr(module.query, part))
            getattr(copied.output, part).copy_(getattr(module.output, part))
    return copied


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("n_groups", [1, 2, 4])
def test_a_group_is_heads_with_the_same_keys_and_values(
    n_groups: int, fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CH-85: one group is MQA, as many groups as heads MHA."""
    module = build(n_groups)
    expected = attend(with_every_heads_own(module), causal_mask(LENGTH))
    monkeypatch.setattr(attention, "_PLAIN_BELOW", 0 if fused else 1000)
    torch.testing.assert_close(attend(module, causal_mask(LENGTH)), expected, rtol=0, atol=1e-5)


def test_a_group_for_each_head_is_multi_head_attention() -> None:
    """CH-85, with the very weights of the one in the other"""
    grouped, plain = build(HEADS), build()
    torch.manual_seed(9)
    plain.load_state_dict({name: torch.randn_like(tensor) for name, tensor in plain.state_dict().items()})
    grouped.load_state_dict(plain.state_dict())
    assert torch.equal(attend(grouped, None)[0], attend(plain, None)[0])


@pytest.mark.parametrize("n_groups", [1, 2])
def test_weights_of_heads_that_share_keys_are_those_of_each_head(n_groups: int) -> None:
    """In float64: head i attends to the keys and values of group i // (h / g)."""
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(BATCH, HEADS, 5, D_HEAD, generator=generator)
    keys, values = (torch.randn(BATCH, n_groups, LENGTH, D_HEAD, generator=generator) for _ in range(2))
    pad_mask = torch.arange(LENGTH) >= torch.tensor([6, 2, 1])[:, None]
    weights = attention_weights(queries, keys, key_pad_mask(pad_mask))
    context = weighted_sum(weights, values)
    for head in range(HEADS):
        group = head // (HEADS // n_groups)
        energy = np.einsum("bqd,bkd->bqk", queries[:, head].double(), keys[:, group].double()) / math.sqrt(D_HEAD)
        exponential = np.where(pad_mask[:, None], 0, np.exp(energy))
        expected = exponential / exponential.sum(-1, keepdims=True)
        assert np.allclose(weights[:, head].numpy(), expected, rtol=0, atol=1e-6)
        assert np.allclose(context[:, head].numpy(), expected @ values[:, group].double().numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", SHARING)
def test_asking_for_weights_leaves_the_rest_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = SHARING[kind]()
    monkeypatch.setattr(attention, "_PLAIN_BELOW", 0)
    silent = attend(module, causal_mask(LENGTH))
    asked, weights = attend(module, causal_mask(LENGTH), need_weights=True)
    torch.testing.assert_close(silent, [asked], rtol=0, atol=1e-5)
    assert torch.allclose(weights.sum(-1), torch.ones(BATCH, LENGTH))
    assert weights.triu(1).eq(0).all()


@pytest.mark.parametrize("kind", SHARING)
def test_one_position_at_a_time_gives_what_all_at_once_give(kind: str) -> None:
    module = SHARING[kind]()
    together = attend(module, causal_mask(LENGTH))[0]
    x = sequence()
    cache = module.project_all(x[:, :0])[1]
    for position in range(LENGTH):
        queries, new = module.project_all(x[:, position : position + 1])
        cache = KeysValues(*(torch.cat(pair, dim=2) for pair in zip(cache, new, strict=True)))
        found, _ = module.attend(queries, cache, None)
        assert torch.allclose(found[:, 0], together[:, position], rtol=0, atol=1e-5)


def test_what_is_kept_of_a_token() -> None:
    """CH-85: 2 h d_k numbers, 2 g d_k, 2 d_k, d_c."""
    kept = {
        name: sum(part.numel() for part in module.project_keys_values(sequence())) // (BATCH * LENGTH)
        for name, module in {"mha": build(), "gqa": build(2), "mqa": build(1), "mla": build_latent()}.items()
    }
    assert kept == {"mha": 2 * HEADS * D_HEAD, "gqa": 2 * 2 * D_HEAD, "mqa": 2 * D_HEAD, "mla": D_LATENT}


@pytest.mark.parametrize("d_key", [D_HEAD, 3])
@pytest.mark.parametrize("fused", [False, True])
def test_latent_attention_is_attention_to_keys_and_values_made_from_the_latent(
    fused: bool, d_key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CH-85: what it never makes, made here: keys U_i c and values V_i c of each head, in float64."""
    module, x = build_latent(d_key=d_key), sequence()
    mask = causal_mask(LENGTH)
    u, v = module.key.detach().double().numpy(), module.value.detach().double().numpy()
    every_query = split_heads(module.query(x), HEADS).detach().double().numpy()
    latent = x.double().numpy() @ module.latent.weight.detach().double().numpy().T
    contexts = []
    for head in range(HEADS):
        energy = every_query[:, head] @ (latent @ u[head].T).transpose(0, 2, 1) / math.sqrt(d_key)
        exponential = np.where(mask, 0, np.exp(energy))
        contexts.append(exponential / exponential.sum(-1, keepdims=True) @ (latent @ v[head]))
    expected = module.output(torch.from_numpy(np.concatenate(contexts, -1)).float()).detach().numpy()
    monkeypatch.setattr(attention, "_PLAIN_BELOW", 0 if fused else 1000)
    assert np.allclose(attend(module, mask)[0].detach().numpy(), expected, rtol=0, atol=1e-5)


def test_a_latent_as_wide_as_the_model_can_be_multi_head_attention() -> None:
    """CH-85: with U_i W_c = W_i^K and V_i W_c = W_i^V for an invertible W_c; keys and values then have no biases."""
    plain, latent = build(), build_latent(D)
    with torch.no_grad():
        plain.key_value.bias.zero_()
        latent.query.load_state_dict(plain.query.state_dict())
        latent.output.load_state_dict(plain.output.state_dict())
        latent.latent.weight.copy_(torch.eye(D) + 0.1 * latent.latent.weight)
        inverse = latent.latent.weight.double().inverse()
        up_keys, up_values = (
            (matrix.double() @ inverse).float().view(HEADS, D_HEAD, D) for matrix in plain.key_value.weight.chunk(2)
        )
        latent.key.copy_(up_keys)
        latent.value.copy_(up_values.transpose(1, 2))
    torch.testing.assert_close(
        attend(latent, causal_mask(LENGTH)), attend(plain, causal_mask(LENGTH)), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("fused", [False, True])
def test_no_scale_is_a_temperature_of_the_root_of_d_k(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """CH-65: attention without the scale is attention with it whose queries are sqrt(d_k) times as long."""
    monkeypatch.setattr(attention, "_PLAIN_BELOW", 0 if fused else 1000)
    scaled, unscaled = build(), build(scaled=False)
    before = attend(scaled, None)[0]
    with torch.no_grad():
        scaled.query.weight.mul_(math.sqrt(D_HEAD))
        scaled.query.bias.mul_(math.sqrt(D_HEAD))
    found = attend(unscaled, None)[0]
    assert torch.allclose(found, attend(scaled, None)[0], rtol=0, atol=1e-4)
    assert not torch.allclose(found, before, rtol=0, atol=1e-2)


def test_shared_keys_and_values_are_not_copied_for_the_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's kernel gets the one key and the one value as they are, and is told that heads share them."""
    calls = []
    kernel = F.scaled_dot_product_attention

    def spy(*args: object, **kwargs: object) -> Tensor:
        calls.append((args[1].shape[1], args[2].shape[1], kwargs["enable_gqa"]))
        return kernel(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    monkeypatch.setattr(attention, "_PLAIN_BELOW", 0)
    for module in (build(), build(2), build(1), build_latent()):
        attend(module, None)
    assert calls == [(4, 4, False), (2, 2, True), (1, 1, True), (1, 1, True)]


def test_first_weights_of_the_latent_are_those_of_one_matrix_for_all_heads() -> None:
    """Glorot and Bengio (2010): uniform within sqrt(6 / (d_c + d)), so with variance 2 / (d_c + d)."""
    torch.manual_seed(1)
    module = LatentAttention(256, 8, d_latent=64)
    for matrix in (module.latent.weight, module.key, module.value):
        assert matrix.numel() == 64 * 256
        # standard error of the variance of n uniform values: sqrt(0.8 / n) of it
        relative = matrix.var().item() * (64 + 256) / 2
        assert abs(relative - 1) <= 4 * math.sqrt(0.8 / matrix.numel())
        assert matrix.abs().max() <= math.sqrt(6 / (64 + 256))
    assert not hasattr(module, "key_value")
