"""RNNencdec: one vector for the whole sentence, and the special case of RNNsearch that it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from mtkit.models import Memory, TranslationModel, rnnencdec, rnnsearch

VOCAB_SIZE = 11
SRC = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]])
TRG_IN = torch.tensor([[2, 7, 8], [2, 9, 4]])


@pytest.fixture
def model() -> rnnencdec.Model:
    torch.manual_seed(0)
    return rnnencdec.Model(rnnencdec.PRESETS["tiny"], VOCAB_SIZE, VOCAB_SIZE, 0).double().eval()


def logits_by_steps(model: TranslationModel, memory: Memory) -> Tensor:
    state, logits = model.start(memory), []
    for prev in TRG_IN.unbind(1):
        step = model.step(prev, state, memory)
        state = step.state
        logits.append(step.logits)
    return torch.stack(logits, dim=1)


def test_the_paper_preset_has_the_sizes_of_the_paper() -> None:
    config = rnnencdec.PRESETS["paper"]
    assert (config.d_embedding, config.d_encoder, config.d_hidden, config.d_maxout) == (620, 1000, 1000, 500)


def test_the_number_of_parameters() -> None:
    """Counted from the matrices of the equations, with one bias a layer."""
    c = rnnencdec.PRESETS["tiny"]
    m, n_e, n, m_out, src_vocab, trg_vocab = c.d_embedding, c.d_encoder, c.d_hidden, c.d_maxout, 11, 13
    expected = (
        (src_vocab + trg_vocab) * m
        + 3 * (n_e * m + n_e * n_e + n_e)
        + n * n_e
        + n
        + 3 * (n * m + n * n + n * n_e + n)
        + 2 * m_out * (n + m + n_e + 1)
        + trg_vocab * m_out
        + trg_vocab
    )
    model = rnnencdec.Model(c, src_vocab, trg_vocab, 0)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_the_context_is_the_state_after_the_last_real_token(model: rnnencdec.Model) -> None:
    memory = model.encode(SRC, SRC == 0)
    for row, length in enumerate((4, 2)):
        state = torch.zeros(1, 14, dtype=torch.float64)
        for token in SRC[row, :length]:
            state = model.encoder(model.encoder.input(model.src_embedding(token[None])), state)
        torch.testing.assert_close(memory.cache[row], state[0])


def test_the_first_state_comes_from_the_context(model: rnnencdec.Model) -> None:
    memory = model.encode(SRC, SRC == 0)
    w, b = (parameter.detach().numpy() for parameter in model.initial.parameters())
    expected = np.tanh(memory.cache.detach().numpy() @ w.T + b)
    np.testing.assert_allclose(model.start(memory).hidden[:, 0].detach().numpy(), expected, rtol=1e-10)


def test_the_decoder_knows_the_source_through_one_vector_alone(model: rnnencdec.Model) -> None:
    memory = model.encode(SRC, SRC == 0)
    without_states = memory._replace(states=torch.zeros_like(memory.states))
    assert torch.equal(logits_by_steps(model, without_states), logits_by_steps(model, memory))


def test_every_step_is_given_the_same_vector_anew(model: rnnencdec.Model) -> None:
    """CH-09: c is constant over the decoder's steps and enters each: another c in the middle shows at once, also with
    the state before it."""
    memory = model.encode(SRC, SRC == 0)
    other = memory._replace(cache=memory.cache.flip(0))
    first = model.step(TRG_IN[:, 0], model.start(memory), memory)
    second, swapped = (model.step(TRG_IN[:, 1], first.state, given) for given in (memory, other))
    assert ((second.logits - swapped.logits).abs().amax(dim=1) > 1e-6).all()
    assert ((second.state.hidden - swapped.state.hidden).abs().amax(dim=2) > 1e-6).all()
    torch.testing.assert_close(second.logits, model(SRC, SRC == 0, TRG_IN)[:, 1])  # the same memory twice


def test_the_sentence_vector_forgets_its_first_words() -> None:
    """CH-20: the gradient of c shrinks with the steps since a word was read, at the first weights.

    By the paper's N(0, 0.01^2) z and r stand at 1/2 and U is orthogonal: a step back leaves (1 - z) I + z r U, half
    of the state and a quarter of a rotation, so at most 3/4 of the length and at least 1/4.
    """
    torch.manual_seed(0)
    model = rnnencdec.Model(rnnencdec.PRESETS["tiny"].model_copy(update={"init": "paper"}), 11, 11, 0).double()
    src = torch.randint(4, 11, (1, 16))
    kept: list[Tensor] = []
    model.src_embedding.register_forward_hook(lambda _, __, output: kept.append(output))
    memory = model.encode(src, torch.zeros_like(src, dtype=torch.bool))
    rows = [torch.autograd.grad(unit, kept[0], retain_graph=True)[0][:, 0] for unit in memory.cache[0]]
    norms = torch.stack(rows).norm(dim=(0, 2))  # by source position
    ratios = norms[:-1] / norms[1:]
    assert (ratios > 0.24).all()
    assert (ratios < 0.76).all()
    assert norms[0] < norms[-1] / 100


def test_it_is_rnnsearch_with_a_constant_context(model: rnnencdec.Model) -> None:
    """CH-29; Bahdanau et al. (2015), A.2.2: c_i fixed to ->h_Tx. Attention over states that are all c gives c, whatever
    the weights; RNNsearch's context is twice as wide, so its second half is 0 here."""
    encdec = rnnencdec.PRESETS["tiny"]
    config = rnnsearch.Config(
        d_embedding=encdec.d_embedding,
        d_encoder=encdec.d_encoder,
        d_hidden=encdec.d_hidden,
        d_attention=5,
        d_maxout=encdec.d_maxout,
        dropout=0.0,
    )
    search = rnnsearch.Model(config, VOCAB_SIZE, VOCAB_SIZE, 0).double().eval()
    shared = {name.replace("encoder.", "forward_encoder."): tensor for name, tensor in model.state_dict().items()}
    for name in ("decoder.context.weight", "readout.context.weight"):
        shared[name] = torch.cat([shared[name], torch.randn_like(shared[name])], dim=1)
    missing, unexpected = search.load_state_dict(shared, strict=False)
    assert not unexpected
    assert {name.split(".")[0] for name in missing} == {"backward_encoder", "attention"}

    memory = search.encode(SRC, SRC == 0)
    last = torch.stack([memory.states[0, 3], memory.states[1, 1]])  # of four and of two tokens
    last[:, encdec.d_encoder :] = 0
    states = last[:, None].expand(-1, SRC.shape[1], -1).contiguous()
    constant = Memory(states, SRC == 0, search.attention.keys(states))
    # s_0 = tanh(W_s <-h_1) in RNNsearch and tanh(W_s c) here: the other state that the fixed context replaces
    state = rnnsearch.State(torch.tanh(search.initial(last[:, : encdec.d_encoder]))[:, None])
    expected = model(SRC, SRC == 0, TRG_IN)
    for t, prev in enumerate(TRG_IN.unbind(1)):
        step = search.step(prev, state, constant)
        state = step.state
        torch.testing.assert_close(step.logits, expected[:, t])
