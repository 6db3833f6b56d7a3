"""RNNsearch: its first state, its size, and that it is the model of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mtkit import models
from mtkit.models import rnnsearch

VOCAB_SIZE = 11


@pytest.fixture
def model() -> rnnsearch.Model:
    torch.manual_seed(0)
    return rnnsearch.Model(rnnsearch.PRESETS["tiny"], VOCAB_SIZE, VOCAB_SIZE, 0).double().eval()


@pytest.fixture
def src() -> torch.Tensor:
    return torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]])


def test_the_paper_preset_has_the_sizes_of_the_paper() -> None:
    config = rnnsearch.PRESETS["paper"]
    assert (config.d_embedding, config.d_encoder, config.d_hidden) == (620, 1000, 1000)
    assert (config.d_attention, config.d_maxout, config.dropout) == (1000, 500, 0)


def test_the_number_of_parameters() -> None:
    """Counted from the matrices of appendix A, with one bias a layer."""
    c = rnnsearch.PRESETS["tiny"]
    m, n_e, n, a, m_out, src_vocab, trg_vocab = (
        c.d_embedding,
        c.d_encoder,
        c.d_hidden,
        c.d_attention,
        c.d_maxout,
        11,
        13,
    )
    embeddings = (src_vocab + trg_vocab) * m
    encoder = 2 * 3 * (n_e * m + n_e * n_e + n_e)
    first_state = n * n_e + n
    attention = a * n + a * 2 * n_e + a + a
    decoder = 3 * (n * m + n * n + n * 2 * n_e + n)
    readout = 2 * m_out * (n + m + 2 * n_e) + 2 * m_out
    output = trg_vocab * m_out + trg_vocab
    model = rnnsearch.Model(c, src_vocab, trg_vocab, 0)
    expected = embeddings + encoder + first_state + attention + decoder + readout + output
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_the_first_state_comes_from_the_first_backward_state(model: rnnsearch.Model, src: torch.Tensor) -> None:
    """s_0 = tanh(W_s <-h_1 + b), and <-h_1 has read the whole sentence from its end."""
    memory = model.encode(src, src == 0)
    embedded = model.src_embedding(src[:1])
    state = torch.zeros(1, 8, dtype=torch.float64)
    for t in (3, 2, 1, 0):
        state = model.backward_encoder(model.backward_encoder.input(embedded[:, t]), state)
    w, b = (parameter.detach().numpy() for parameter in model.initial.parameters())
    expected = np.tanh(w @ state[0].detach().numpy() + b)
    np.testing.assert_allclose(model.start(memory).hidden[0, 0].detach().numpy(), expected, rtol=1e-10)


def test_an_encoder_state_joins_both_directions(model: rnnsearch.Model, src: torch.Tensor) -> None:
    """The forward half knows what stands before, the backward half what stands behind."""
    states = model.encode(src, src == 0).states
    changed = model.encode(torch.tensor([[4, 9, 6, 3], [7, 3, 0, 0]]), src == 0).states
    differs = (states - changed)[0].abs() > 1e-12  # [src_len, 2 d_encoder]
    assert differs[:, :8].any(dim=1).tolist() == [False, True, True, True]
    assert differs[:, 8:].any(dim=1).tolist() == [True, True, False, False]


def test_the_context_changes_from_step_to_step(model: rnnsearch.Model, src: torch.Tensor) -> None:
    """CH-26"""
    memory = model.encode(src, src == 0)
    first = model.step(torch.tensor([2, 2]), model.start(memory), memory, need_attention=True)
    second = model.step(torch.tensor([5, 6]), first.state, memory, need_attention=True)
    assert first.attention is not None
    assert second.attention is not None
    assert not torch.allclose(first.attention, second.attention)


def test_a_token_moves_the_next_alignment_and_not_its_own(model: rnnsearch.Model, src: torch.Tensor) -> None:
    """CH-54: alpha_i is made from s_{i-1}, which has read the tokens before y_{i-1}; y_{i-1} enters s_i and the output.
    Luong et al. (2015) align with h_t, which has read it."""
    memory = model.encode(src, src == 0)
    state, last = model.start(memory), torch.tensor([5, 5])
    first, changed = (model.step(torch.tensor([token, token]), state, memory, need_attention=True) for token in (4, 8))
    assert first.attention is not None
    assert changed.attention is not None
    assert torch.equal(first.attention, changed.attention)
    assert ((first.logits - changed.logits).abs().amax(dim=1) > 1e-6).all()
    after, after_changed = (
        model.step(last, step.state, memory, need_attention=True).attention for step in (first, changed)
    )
    assert after is not None
    assert after_changed is not None
    assert ((after - after_changed).abs().amax(dim=1) > 1e-6).all()


def test_the_source_half_of_the_energies_is_computed_once_a_sentence(model: rnnsearch.Model, src: torch.Tensor) -> None:
    """CH-28: U_a h_j does not depend on i, so decoding never multiplies by U_a again, and beams share it."""
    calls: list[torch.Tensor] = []
    model.attention.key.register_forward_hook(lambda _, __, output: calls.append(output))
    memory = model.encode(src, src == 0)
    state, prev = model.start(memory), torch.tensor([2, 2])
    for _ in range(5):
        step = model.step(prev, state, memory)
        state, prev = step.state, step.logits.argmax(dim=1)
    assert len(calls) == 1
    u, b = model.attention.key.weight, model.attention.key.bias
    torch.testing.assert_close(memory.cache, torch.einsum("ad,bsd->bsa", u, memory.states) + b)


@pytest.mark.parametrize("init", ["paper", "xavier"])
def test_attention_brings_every_source_word_near(init: str) -> None:
    """CH-38: gradient of the first output by source position, at the first weights. From the fixed vector it comes to
    the first word through 23 states, each of which leaves at most 3/4 of it (z = r = 1/2, U orthogonal; 3/4 to the 23rd
    is 1/750); attention holds a state of its own for each word."""
    src = torch.randint(4, VOCAB_SIZE, (8, 24), generator=torch.Generator().manual_seed(1))

    def gradient_by_position(backend: str) -> torch.Tensor:
        torch.manual_seed(0)
        model: Any = models.build({"type": backend, "preset": "tiny", "init": init}, VOCAB_SIZE, VOCAB_SIZE, 0).double()
        kept: list[torch.Tensor] = []
        model.src_embedding.register_forward_hook(lambda _, __, output: kept.append(output))
        logits = model(src, src == 0, torch.full((8, 1), 2))
        loss = torch.nn.functional.cross_entropy(logits[:, 0], torch.full((8,), 5))
        return torch.autograd.grad(loss, kept[0])[0].norm(dim=(1, 2))

    fixed, attended = gradient_by_position("rnnencdec"), gradient_by_position("rnnsearch")
    assert fixed[0] < fixed[-1] / 750
    assert attended.min() > attended.max() / 20


def test_the_first_weights_are_those_of_the_paper() -> None:
    """Bahdanau et al. (2015), B.1: W_a and U_a from N(0, 0.001^2), v_a and all biases 0, U orthogonal, the rest from
    N(0, 0.01^2)."""
    torch.manual_seed(0)
    config = rnnsearch.Config(d_embedding=40, d_encoder=30, d_hidden=50, d_attention=60, d_maxout=30, init="paper")
    model = rnnsearch.Model(config, 200, 200, 0)
    deviations = {"attention.query.weight": 0.001, "attention.key.weight": 0.001}
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or name == "attention.energy.weight":
            assert (parameter == 0).all(), name
        elif name.endswith("recurrent.weight"):
            for gate in parameter.detach().chunk(3):
                torch.testing.assert_close(gate @ gate.t(), torch.eye(len(gate)), rtol=0, atol=1e-5)
        else:
            assert parameter.std().item() == pytest.approx(deviations.get(name, 0.01), rel=0.06), name


def test_logits_follow_the_readout_of_the_paper(model: rnnsearch.Model, src: torch.Tensor) -> None:
    """With s_{i-1}, not s_i, in the deep output."""
    memory = model.encode(src, src == 0)
    prev, state = torch.tensor([4, 8]), model.start(memory)
    step = model.step(prev, state, memory, need_attention=True)
    assert step.attention is not None
    context = torch.einsum("bs,bsd->bd", step.attention, memory.states)
    parts = model.readout
    t = (
        state.hidden[:, 0] @ parts.state.weight.T
        + model.trg_embedding.weight[prev] @ parts.embedding.weight.T
        + context @ parts.context.weight.T
        + parts.state.bias
    )
    maxout = t.view(2, -1, 2).amax(dim=2)
    torch.testing.assert_close(step.logits, maxout @ model.output.weight.T + model.output.bias)


def test_source_and_target_vocabularies_may_differ() -> None:
    model = models.build({"type": "rnnsearch", "preset": "tiny"}, 7, 19, 0)
    src = torch.tensor([[6, 3]])
    assert model(src, src == 0, torch.tensor([[2, 18, 17]])).shape == (1, 3, 19)
