"""Additive attention by hand and in NumPy; the fused decoder scan against single steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mtkit.nn.additive import AdditiveAttention, attentive_scan
from mtkit.nn.luong_attention import SourceScore
from mtkit.nn.recurrent import GRUCell

D_QUERY, D_MEMORY, D_ATTENTION, D_EMBEDDING = 3, 5, 4, 2
TRG_LEN, BATCH, SRC_LEN = 4, 3, 6


@pytest.fixture
def attention() -> AdditiveAttention:
    return random_(AdditiveAttention(D_QUERY, D_MEMORY, D_ATTENTION))


@pytest.fixture
def cell() -> GRUCell:
    return random_(GRUCell(D_EMBEDDING, D_QUERY, D_MEMORY))


@pytest.fixture
def pad_mask() -> Tensor:
    return torch.arange(SRC_LEN) >= torch.tensor([[6], [3], [1]])


def random_(module: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def scan_by_steps(
    cell: GRUCell, attention: AdditiveAttention, inputs: Tensor, state: Tensor, memory: Tensor, pad_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """What `attentive_scan` computes, from the layers for one step and with autograd's own gradient."""
    assert cell.context is not None
    keys = attention.keys(memory)
    states, contexts = [], []
    for t in range(len(inputs) + 1):
        context, _ = attention(state, memory, keys, pad_mask)
        states.append(state)
        contexts.append(context)
        if t < len(inputs):
            state = cell(inputs[t] + cell.context(context), state)
    return torch.stack(states), torch.stack(contexts)


def test_one_unit_by_hand() -> None:
    """CH-24: v = 2, W_a = 1, U_a = 1, s = 0, h = 0 and atanh(1/2): energies 0 and 1, attention 1 : e."""
    attention = AdditiveAttention(1, 1, 1).double()
    with torch.no_grad():
        for parameter, value in ((attention.query.weight, 1), (attention.key.weight, 1), (attention.energy.weight, 2)):
            parameter.fill_(value)
        attention.key.bias.zero_()
    memory = torch.tensor([[[0.0], [math.atanh(0.5)]]], dtype=torch.float64)
    no_padding = torch.zeros(1, 2, dtype=torch.bool)
    query = torch.zeros(1, 1, dtype=torch.float64)
    context, weights = attention(query, memory, attention.keys(memory), no_padding)
    assert weights[0].tolist() == pytest.approx([1 / (1 + math.e), math.e / (1 + math.e)])
    assert context.item() == pytest.approx(math.atanh(0.5) * math.e / (1 + math.e))


def test_energies_and_context_are_those_of_the_paper(attention: AdditiveAttention, pad_mask: Tensor) -> None:
    """CH-24, CH-27: pair by pair; query and memory differ in width, which a dot product could not bridge."""
    queries, memory = normal(BATCH, D_QUERY), normal(BATCH, SRC_LEN, D_MEMORY, seed=1)
    context, weights = attention(queries, memory, attention.keys(memory), pad_mask)
    w, u, b, v = (p.detach().numpy() for p in (attention.query.weight, attention.key.weight, attention.key.bias,
                                              attention.energy.weight[0]))  # fmt: skip
    for row in range(BATCH):
        h = memory[row, ~pad_mask[row]].numpy()
        energies = np.array([v @ np.tanh(w @ queries[row].numpy() + u @ h_j + b) for h_j in h])
        alpha = np.exp(energies) / np.exp(energies).sum()
        np.testing.assert_allclose(weights[row, : len(h)].detach().numpy(), alpha, rtol=1e-12)
        np.testing.assert_allclose(context[row].detach().numpy(), alpha @ h, rtol=1e-12)


def test_attention_sums_to_one_and_padding_gets_none(attention: AdditiveAttention, pad_mask: Tensor) -> None:
    """CH-25"""
    memory = normal(BATCH, SRC_LEN, D_MEMORY)
    _, weights = attention(normal(BATCH, D_QUERY), memory, attention.keys(memory), pad_mask)
    assert (weights[pad_mask] == 0).all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(BATCH, dtype=torch.float64))


def test_several_queries_share_a_memory_row(attention: AdditiveAttention, pad_mask: Tensor) -> None:
    k = 2
    queries, memory = normal(BATCH * k, D_QUERY), normal(BATCH, SRC_LEN, D_MEMORY)
    shared = attention(queries, memory, attention.keys(memory), pad_mask)
    copied = memory.repeat_interleave(k, dim=0)
    apart = attention(queries, copied, attention.keys(copied), pad_mask.repeat_interleave(k, dim=0))
    torch.testing.assert_close(shared, apart)


def test_a_scan_is_its_steps(cell: GRUCell, attention: AdditiveAttention, pad_mask: Tensor) -> None:
    inputs, state = normal(TRG_LEN - 1, BATCH, 3 * D_QUERY), normal(BATCH, D_QUERY)
    memory = normal(BATCH, SRC_LEN, D_MEMORY)
    found = attentive_scan(cell, attention, inputs, state, memory, attention.keys(memory), pad_mask)
    torch.testing.assert_close(found, scan_by_steps(cell, attention, inputs, state, memory, pad_mask))


@pytest.mark.parametrize("trg_len", [1, TRG_LEN])
def test_the_gradient_of_a_scan_by_hand_is_the_numerical_one(
    cell: GRUCell, attention: AdditiveAttention, pad_mask: Tensor, trg_len: int
) -> None:
    inputs, state = normal(trg_len - 1, BATCH, 3 * D_QUERY), normal(BATCH, D_QUERY)
    memory, keys = normal(BATCH, SRC_LEN, D_MEMORY), normal(BATCH, SRC_LEN, D_ATTENTION, seed=1)
    variables = [variable.requires_grad_() for variable in (inputs, state, memory, keys)]
    weights = [attention.query.weight, attention.energy.weight, cell.recurrent.weight]
    assert cell.context is not None

    def scan(inputs: Tensor, state: Tensor, memory: Tensor, keys: Tensor, *_weights: Tensor) -> tuple[Tensor, Tensor]:
        return attentive_scan(cell, attention, inputs, state, memory, keys, pad_mask)

    assert torch.autograd.gradcheck(scan, (*variables, *weights, cell.context.weight))


def test_energies_far_from_zero_stay_finite(cell: GRUCell, attention: AdditiveAttention, pad_mask: Tensor) -> None:
    """tanh is saturated, where a product of exponentials would overflow."""
    cell.float(), attention.float()
    inputs, memory = normal(TRG_LEN - 1, BATCH, 3 * D_QUERY).float(), normal(BATCH, SRC_LEN, D_MEMORY).float()
    keys = (1e4 * normal(BATCH, SRC_LEN, D_ATTENTION).float()).requires_grad_()
    states, contexts = attentive_scan(cell, attention, inputs, torch.zeros(BATCH, D_QUERY), memory, keys, pad_mask)
    expected, _ = attention(states[0], memory, keys, pad_mask)
    torch.testing.assert_close(contexts[0], expected)
    (states.sum() + contexts.sum()).backward()
    assert keys.grad is not None
    assert keys.grad.isfinite().all()


def test_the_additive_score_is_not_symmetric_where_a_dot_product_is() -> None:
    """CH-37. Attention shows energies up to a constant, so compare differences: around three vectors a, b, c,
    (e_ab - e_ac) + (e_bc - e_ba) + (e_ca - e_cb) = 0 for any score with e_xy = e_yx."""
    attention = random_(AdditiveAttention(3, 3, 4))
    vectors = normal(3, 3)
    around = [[1, 2], [2, 0], [0, 1]]  # each vector attends to the next and the one after it
    memory = torch.stack([vectors[pair] for pair in around])

    def asymmetry(weights: Tensor) -> float:
        return (weights[:, 0] / weights[:, 1]).log().sum().abs().item()

    _, additive = attention(vectors, memory, attention.keys(memory), torch.zeros(3, 2, dtype=torch.bool))
    dot = SourceScore("dot", 3, 3, 0, 0)
    energies = dot(vectors[:, None], dot.keys(memory))[:, 0]
    assert asymmetry(additive) > 1e-3
    assert asymmetry(energies.softmax(dim=1)) < 1e-12
    with torch.no_grad():
        attention.query.weight.copy_(attention.key.weight)  # W_a = U_a: the one case where swapping changes nothing
    _, tied = attention(vectors, memory, attention.keys(memory), torch.zeros(3, 2, dtype=torch.bool))
    assert asymmetry(tied) < 1e-12


def test_the_paper_scheme_starts_with_even_attention(pad_mask: Tensor) -> None:
    """v_a = 0: all energies are 0, whatever W_a and U_a."""
    attention = AdditiveAttention(D_QUERY, D_MEMORY, D_ATTENTION).double()
    attention.initialize("paper")
    memory = normal(BATCH, SRC_LEN, D_MEMORY)
    _, weights = attention(normal(BATCH, D_QUERY), memory, attention.keys(memory), pad_mask)
    assert weights[1].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0, 0, 0])
